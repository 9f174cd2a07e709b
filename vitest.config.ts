import { defineConfig } from 'vitest/config';

/**
 * The four rings of tests. Each file starts the stores it needs on free ports with its own data directory, and
 * fails when it leaves a process, a server or a connection behind.
 */
export default defineConfig({
  test: {
    passWithNoTests: false,
    sequence: { hooks: 'stack' },
    projects: [
      {
        test: {
          name: 'unit',
          setupFiles: ['tests/support/leaks.ts'],
          include: ['packages/*/src/**/*.test.ts', 'apps/*/src/**/*.test.ts'],
          exclude: ['**/*.store.test.ts', '**/node_modules/**'],
          testTimeout: 30_000,
        },
      },
      {
        test: {
          name: 'store',
          setupFiles: ['tests/support/leaks.ts'],
          include: ['tests/store/**/*.store.test.ts', 'apps/*/src/**/*.store.test.ts'],
          testTimeout: 60_000,
          hookTimeout: 60_000,
        },
      },
      {
        test: {
          name: 'contract',
          setupFiles: ['tests/support/leaks.ts'],
          include: ['tests/contract/**/*.test.ts'],
          testTimeout: 60_000,
          hookTimeout: 60_000,
        },
      },
      {
        test: {
          name: 'system',
          setupFiles: ['tests/support/leaks.ts'],
          include: ['tests/system/**/*.test.ts'],
          testTimeout: 240_000,
          hookTimeout: 120_000,
          fileParallelism: false,
        },
      },
    ],
  },
});
