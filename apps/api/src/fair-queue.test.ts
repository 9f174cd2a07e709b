import { describe, expect, it } from 'vitest';
import { FairQueue } from './fair-queue.ts';

function drain(queue: FairQueue<string>): string[] {
  const taken: string[] = [];
  while (!queue.isEmpty) {
    const next = queue.peek();
    expect(queue.shift()).toBe(next);
    taken.push(next ?? '');
  }
  return taken;
}

describe('FairQueue', () => {
  it('serves a lone item after at most one of each other owner, however many those have', () => {
    const queue = new FairQueue<string>();
    for (let n = 0; n < 1_000; n += 1) queue.push('flooder', `f${n}`);
    queue.push('quiet', 'q0');
    queue.push('quiet', 'q1');
    expect(drain(queue).slice(0, 5)).toEqual(['f0', 'q0', 'f1', 'q1', 'f2']);
  });

  it("keeps the order of an owner's own items, and is empty once all are taken", () => {
    const queue = new FairQueue<string>();
    for (const item of ['a1', 'b1', 'a2', 'c1', 'a3', 'b2']) queue.push(item.slice(0, 1), item);
    const taken = drain(queue);
    for (const owner of ['a', 'b', 'c']) {
      const own = taken.filter((item) => item.startsWith(owner));
      expect(own).toEqual(own.toSorted());
    }
    expect([taken.length, queue.peek(), queue.shift()]).toEqual([6, undefined, undefined]);
  });
});
