import { describe, expect, it, vi } from 'vitest';
import { ClickHouseGate } from './clickhouse-gate.ts';

describe('ClickHouseGate', () => {
  it('runs no more at once than it has slots, the others in their order', async () => {
    const gate = new ClickHouseGate(2, 1_000);
    const doors = Array.from({ length: 4 }, () => Promise.withResolvers<void>());
    const started: number[] = [];
    const all = doors.map((door, index) =>
      gate.run(async () => {
        started.push(index);
        await door.promise;
      }),
    );
    await vi.waitFor(() => expect(started).toEqual([0, 1]));
    doors[1]?.resolve();
    await vi.waitFor(() => expect(started).toEqual([0, 1, 2]));
    for (const door of doors) door.resolve();
    await Promise.all(all);
    expect(started).toEqual([0, 1, 2, 3]);
  });

  it('gives a slot back when the work fails', async () => {
    const gate = new ClickHouseGate(1, 1_000);
    const failure = gate.run(async () => {
      throw new Error('no');
    });
    await expect(failure).rejects.toThrow('no');
    expect(await gate.run(async () => 'yes')).toBe('yes');
  });

  it('refuses with code 202 who has waited too long, and does not lose the slot', async () => {
    const gate = new ClickHouseGate(1, 20);
    const door = Promise.withResolvers<void>();
    const first = gate.run(() => door.promise);
    await expect(gate.run(async () => 1)).rejects.toMatchObject({ code: 202 });
    door.resolve();
    await first;
    expect(await gate.run(async () => 2)).toBe(2);
  });

  it('lets at most 64 wait', async () => {
    const gate = new ClickHouseGate(1, 60_000);
    const door = Promise.withResolvers<void>();
    const admitted = Array.from({ length: 65 }, () => gate.run(() => door.promise));
    await expect(gate.run(async () => 1)).rejects.toMatchObject({ code: 202 });
    door.resolve();
    await Promise.all(admitted);
  });
});
