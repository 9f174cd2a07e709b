import { describe, expect, it } from 'vitest';
import { brief, errors, makeRule, makeStreamBlock, NOW_S, OTHER } from './rule.test-support.ts';
import { put, Rig, text } from './step-builder.test-support.ts';

describe('evaluating the stream', () => {
  it('a rule counts what lies behind its change, and nothing before it', () => {
    const rig = new Rig();
    rig.send({ second: NOW_S, entries: errors(2) });
    rig.change(put());
    rig.send({ second: NOW_S, entries: errors(1) }, { second: NOW_S, entries: errors(1) });
    const built = rig.builder.finish();
    expect(built?.step.to).toEqual({ done: 5, controls: 1 });
    expect(built?.step.changes).toEqual([put()]);
    expect(built?.counted).toBe(2);
    expect(built?.step.windows.get(makeRule().id)?.set).toMatchObject({ counted: '2' });
    expect(built?.step.outbox).toEqual([]);
    rig.send({ second: NOW_S + 1, entries: errors(1) });
    const { step } = rig.builder.finish() ?? {};
    expect(step?.outbox.map(brief)).toMatchObject([{ kind: 'fired', count: 3, startedAt: 1 }]);
    expect(step?.windows.get(makeRule().id)?.set).toMatchObject({ counted: '3', state: 'firing' });
  });

  it('nothing is to be written where nothing matches', () => {
    const rig = new Rig();
    rig.send({ second: NOW_S, entries: errors(2) });
    expect(rig.builder.finish()).toBeUndefined();
    rig.change(put());
    rig.builder.finish();
    rig.send(
      { second: NOW_S, entries: [{ level: 2 }] },
      { projectId: OTHER, second: NOW_S, entries: errors(9) },
    );
    expect(rig.builder.finish()).toBeUndefined();
    expect(rig.builder.place).toEqual({ done: 13, controls: 1 });
  });

  it('a disabled or deleted rule counts nothing more, and what fired of it ends', () => {
    for (const change of [
      put(makeRule({ version: 2, generation: 2, enabled: false })),
      { op: 'delete', ruleId: makeRule().id, projectId: makeRule().projectId, version: 2 } as const,
    ]) {
      const rig = new Rig();
      rig.change(put());
      rig.send({ second: NOW_S, entries: errors(3) });
      rig.change(change);
      rig.send({ second: NOW_S, entries: errors(3) });
      const { step } = rig.builder.finish() ?? {};
      expect(step?.outbox.map(brief)).toMatchObject([
        { kind: 'fired', resolvedAt: null },
        { kind: 'resolved', resolvedAt: 100, peak: 3 },
      ]);
      expect([...(step?.resets ?? [])]).toEqual([makeRule().id]);
      expect(step?.changes).toHaveLength(2);
      const { set } = step?.windows.get(makeRule().id) ?? { set: {} };
      expect(set).not.toHaveProperty('counted');
    }
  });

  it('a new generation begins anew; another name or a change that is old does not', () => {
    const rig = new Rig();
    rig.change(put());
    rig.send({ second: NOW_S, entries: errors(2) });
    rig.change(put(makeRule({ version: 2, name: 'renamed' })), put());
    rig.send({ second: NOW_S, entries: errors(1) });
    const renamed = rig.builder.finish();
    expect(renamed?.step.outbox).toMatchObject([{ kind: 'fired', rule: { name: 'renamed' } }]);
    expect(renamed?.step.changes).toHaveLength(2);
    expect(renamed?.step.resets.size).toBe(0);
    rig.change(put(makeRule({ version: 3, generation: 3, threshold: 2 })));
    rig.send({ second: NOW_S, entries: errors(1) });
    const { step } = rig.builder.finish() ?? {};
    expect(step?.windows.get(makeRule().id)?.set).toMatchObject({ counted: '1' });
    expect(step?.outbox.map(({ kind }) => kind)).toEqual(['resolved']);
  });

  it('counts the same from the digest, from columns, and from a run without digest', () => {
    const entries = [{}, { message: 'timeout' }, { level: 2, message: 'timeout' }, { second: NOW_S - 3 }];
    for (const hasDigest of [true, false]) {
      const rig = new Rig();
      rig.change(put(makeRule({ id: 'level' })), put(makeRule({ id: 'text', ...text('TIMEOUT') })));
      const block = makeStreamBlock(1, [
        { projectId: OTHER, second: NOW_S, entries: errors(5) },
        { second: NOW_S, entries },
      ]);
      rig.builder.take(hasDigest ? block : { ...block, digest: Buffer.alloc(0) });
      const { step } = rig.builder.finish() ?? {};
      expect(step?.windows.get('level')?.set).toEqual({
        counted: '3',
        clock: String(NOW_S),
        [`b${NOW_S}`]: '2',
        [`b${NOW_S - 3}`]: '1',
        startedAt: String(NOW_S),
        peak: '3',
        state: 'firing',
        firedCount: '3',
        lastTriggeredAt: String(NOW_S * 1_000),
        notifiedAt: String(NOW_S * 1_000),
      });
      expect(step?.windows.get('text')?.set).toEqual({
        counted: '2',
        clock: String(NOW_S),
        [`b${NOW_S}`]: '2',
      });
      expect(rig.unread).toEqual([]);
    }
  });

  it('a digest that does not account for all entries of its run is not believed', () => {
    const rig = new Rig();
    rig.change(put());
    const block = makeStreamBlock(1, [{ second: NOW_S, entries: errors(2) }]);
    const digest = Buffer.from(block.digest);
    digest.writeUInt32LE(7, 8);
    rig.builder.take({ ...block, digest });
    rig.builder.take({ ...block, firstOffset: 3, digest: digest.subarray(0, 9) });
    expect(rig.counted()).toBe('4');
  });

  it('a damaged block is stepped over and said, and what lies around it is counted', () => {
    const rig = new Rig();
    rig.change(put(makeRule(text('no'))));
    rig.send({ second: NOW_S, entries: errors(1) });
    const block = makeStreamBlock(2, [
      { projectId: OTHER, second: NOW_S, entries: errors(2) },
      { second: NOW_S, entries: errors(3) },
    ]);
    const bytes = Buffer.from(block.block);
    bytes.writeUInt8(bytes.readUInt8(bytes.length - 1) ^ 1, bytes.length - 1);
    rig.builder.take({ ...block, block: bytes });
    rig.builder.take({ ...block, firstOffset: 7, rows: 4, runs: [], damage: 'expected another header' });
    rig.send({ second: NOW_S, entries: errors(1) });
    expect(rig.unread).toMatchObject([
      { reason: 'columns', firstOffset: 4, rows: 3 },
      { reason: 'header', firstOffset: 7, rows: 4 },
    ]);
    expect(rig.builder.place.done).toBe(12);
    expect(rig.counted()).toBe('2');
  });

  it.each([true, false])(
    'blocks whose times of reception go back fire the same wherever a step ends (in between: %s)',
    (isCut) => {
      const rig = new Rig();
      rig.change(put(makeRule({ threshold: 2, timeWindow: '1s' })));
      rig.send({ second: NOW_S + 1, entries: errors(1) });
      const before = isCut ? rig.builder.finish()?.step.outbox : [];
      expect(before).toEqual([]);
      rig.send({ second: NOW_S, entries: errors(2) });
      const { step } = rig.builder.finish() ?? {};
      expect(step?.outbox.map(brief)).toMatchObject([{ kind: 'fired', count: 3, startedAt: 1 }]);
    },
  );

  it('a step ends with about 1,000 transitions', () => {
    const rig = new Rig();
    rig.change(put(makeRule({ threshold: 1, timeWindow: '1s' })));
    let blocks = 0;
    for (; !rig.builder.isFull && blocks < 2_000; blocks += 1)
      rig.send({ second: NOW_S + blocks * 5, entries: errors(1) });
    const { step } = rig.builder.finish() ?? {};
    expect(step?.outbox.length).toBeGreaterThanOrEqual(1_000);
    expect(step?.outbox.length).toBeLessThan(1_010);
    // Each but the last has also ended.
    expect(blocks).toBeGreaterThanOrEqual(500);
    expect(rig.builder.isFull).toBe(false);
  });

  it('a step ends with about 5,000 windows', () => {
    const rig = new Rig();
    const projects = Array.from(
      { length: 60 },
      (_, index) => `0190a5e0-0000-7000-8000-0000000001${10 + index}`,
    );
    for (const [index, projectId] of projects.entries()) {
      for (let rule = 0; rule < 100; rule += 1)
        rig.change(put(makeRule({ id: `${index}-${rule}`, projectId })));
    }
    while (rig.builder.finish() !== undefined);
    let sent = 0;
    for (; !rig.builder.isFull && sent < projects.length; sent += 1) {
      rig.send({ projectId: projects[sent] ?? '', second: NOW_S, entries: errors(1) });
    }
    expect(sent).toBe(50);
    expect(rig.builder.finish()?.step.windows.size).toBe(5_000);
  });

  it('time that passes resolves and reminds the rules that fire, and only those', () => {
    const rig = new Rig();
    rig.change(
      put(makeRule({ id: 'short', timeWindow: '10s' })),
      put(makeRule({ id: 'long', timeWindow: '1h', renotifyAfter: '30s' })),
      put(makeRule({ id: 'idle', threshold: 99 })),
    );
    rig.send({ second: NOW_S, entries: errors(3) });
    rig.builder.finish();
    rig.builder.tick((NOW_S + 30) * 1_000);
    const { step } = rig.builder.finish() ?? {};
    expect(step?.outbox.map(({ kind, rule }) => `${rule.id} ${kind}`)).toEqual([
      'short resolved',
      'long renotified',
    ]);
    expect([...(step?.windows.keys() ?? [])]).toEqual(['short', 'long']);
  });
});
