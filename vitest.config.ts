import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';

/** Files mostly wait for the stores that they start, so even two cores take two at once. */
const maxWorkers = Math.max(2, availableParallelism() - 1);

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
          maxWorkers,
          setupFiles: ['tests/support/leaks.ts'],
          include: ['packages/*/src/**/*.test.ts', 'apps/*/src/**/*.test.ts'],
          exclude: ['**/*.store.test.ts', '**/node_modules/**'],
          testTimeout: 30_000,
        },
      },
      {
        test: {
          name: 'store',
          maxWorkers,
          setupFiles: ['tests/support/leaks.ts'],
          include: ['tests/store/**/*.store.test.ts', 'apps/*/src/**/*.store.test.ts'],
          testTimeout: 60_000,
          hookTimeout: 60_000,
        },
      },
      {
        test: {
          name: 'contract',
          maxWorkers,
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
          // A whole installation each, and faults that are timed: no more than two, and after the other rings.
          maxWorkers: 2,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
