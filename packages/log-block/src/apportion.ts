import type { RunSummary } from './layout.ts';

/** What one project has in a block: its entries, and its part of the block's bytes in the stream. */
export type ProjectShare = { projectId: string; rows: number; bytes: number };

/**
 * Divides the stored bytes of a block among its projects in proportion to their request bodies, in whole
 * bytes that add up to `storedBytes`. The same runs always give the same shares, so that what is added when a
 * block is admitted is exactly what is taken away when it is committed.
 */
export function apportionBlock(runs: readonly RunSummary[], storedBytes: number): ProjectShare[] {
  const bodies = new Map<string, { rows: number; bodyBytes: number }>();
  let total = 0;
  for (const { projectId, rows, bodyBytes } of runs) {
    const sum = bodies.get(projectId) ?? { rows: 0, bodyBytes: 0 };
    bodies.set(projectId, { rows: sum.rows + rows, bodyBytes: sum.bodyBytes + bodyBytes });
    total += bodyBytes;
  }
  const shares: ProjectShare[] = [];
  let passed = 0;
  let given = 0;
  for (const [projectId, { rows, bodyBytes }] of bodies) {
    passed += bodyBytes;
    // Cut at the running sum: the parts can neither lose nor gain a byte.
    const upTo = total === 0 ? storedBytes : Math.floor((storedBytes * passed) / total);
    shares.push({ projectId, rows, bytes: upTo - given });
    given = upTo;
  }
  return shares;
}
