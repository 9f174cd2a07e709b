import { describe, expect, it } from 'vitest';
import { errors, makeRule, makeStreamBlock, NOW_S, OTHER } from './rule.test-support.ts';
import { put, Rig, text } from './step-builder.test-support.ts';

const pattern = (value: string): Partial<ReturnType<typeof makeRule>> => ({
  condition: { ...makeRule().condition, field: 'message', operator: 'regex', value },
});

describe('evaluating with turns of others', () => {
  it('a pattern that takes too long gets no more than its time; other projects are counted whole, with turns between', () => {
    const rig = new Rig();
    const hostile = makeRule({ id: 'hostile', ...pattern('x') });
    rig.change(put(hostile), put(makeRule({ id: 'other', projectId: OTHER, ...pattern('^n') })));
    rig.builder.finish();
    // Each text that a pattern is asked about takes 10 ms, and as much for the turn.
    rig.cpuStepMs = 10;
    const block = makeStreamBlock(1, [
      { second: NOW_S, entries: Array.from({ length: 1_000 }, () => ({ message: 'x'.repeat(4_100) })) },
      { projectId: OTHER, second: NOW_S, entries: errors(50) },
    ]);
    const turnsMs = [];
    let beganMs = rig.cpuMs;
    const parts = rig.builder.takeInTurns(block);
    while (parts.next().done !== true) {
      turnsMs.push(rig.cpuMs - beganMs);
      beganMs = rig.cpuMs;
    }
    expect(Math.max(...turnsMs)).toBeLessThanOrEqual(70);
    const { step } = rig.builder.finish() ?? {};
    expect(step?.windows.get('other')?.set).toMatchObject({ counted: '50' });
    const counted = Number(step?.windows.get('hostile')?.set['counted']);
    // One second to begin with, and 0.2 ms for each of the texts.
    expect(counted).toBeGreaterThan(25);
    expect(counted).toBeLessThan(125);
    expect(rig.skipped).toEqual([
      { projectId: hostile.projectId, ruleIds: ['hostile'], entries: 1_000 - counted },
    ]);
    rig.change(put(makeRule({ ...hostile, version: 2, generation: 2 })));
    rig.builder.take({ ...block, firstOffset: 2_000 });
    // A change of the rule does not fill it again.
    expect(rig.counted('hostile')).toBeUndefined();
  });

  it('a pattern on the service gets no more than its time either', () => {
    const rig = new Rig();
    const rule = makeRule({ ...pattern('^s'), threshold: 9_999 });
    rig.change(put({ ...rule, condition: { ...rule.condition, field: 'service' } }));
    rig.cpuStepMs = 10;
    const entries = Array.from({ length: 800 }, (_, index) => ({ service: `s${index}` }));
    rig.send({ second: NOW_S, entries: entries.slice(0, 200) });
    expect(Number(rig.counted())).toBeGreaterThan(90);
    // Too many services for a digest.
    rig.send({ second: NOW_S, entries: entries.slice(200) });
    expect(rig.counted()).toBeUndefined();
    expect(rig.skipped.reduce((sum, { entries: skipped }) => sum + skipped, 0)).toBeGreaterThan(680);
  });

  it('nothing is written of a block that is not evaluated to its end', () => {
    const rig = new Rig();
    rig.change(put(makeRule({ ...pattern('o') })));
    rig.builder.finish();
    const parts = rig.builder.takeInTurns(makeStreamBlock(1, [{ second: NOW_S, entries: errors(3) }]));
    parts.next();
    expect(() => rig.builder.finish()).toThrow('expected the block taken to its end');
    while (parts.next().done !== true);
    expect(rig.counted()).toBe('3');
  });

  it('a block of 65,535 entries is evaluated with turns between, and counted once', () => {
    const rig = new Rig();
    rig.change(put(makeRule({ ...text('no') })));
    const entries = Array.from({ length: 65_535 }, () => ({}));
    const parts = rig.builder.takeInTurns(makeStreamBlock(1, [{ second: NOW_S, entries }]));
    let turns = 0;
    for (; parts.next().done !== true; turns += 1);
    expect(turns).toBe(33);
    expect(rig.counted()).toBe('65535');
  });
});
