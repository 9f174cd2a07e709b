import { afterAll } from 'vitest';
import { waitFor } from './wait.ts';

/** What a test file must not leave behind: children, listeners, and connections that nobody closed. */
const LEAKS = new Set(['ProcessWrap', 'TCPServerWrap', 'TCPSocketWrap']);

// Hooks run in reverse order, so this one sees what the file's own hooks have left.
afterAll(async () => {
  const left = (): string[] => process.getActiveResourcesInfo().filter((resource) => LEAKS.has(resource));
  // Closing a connection takes a turn of the event loop or two.
  await waitFor('all handles to be closed', () => left().length === 0, 2_000).catch(() => {});
  if (left().length > 0) throw new Error(`this test file left open: ${left().join(', ')}`);
});
