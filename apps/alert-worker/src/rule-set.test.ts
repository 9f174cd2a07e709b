import { describe, expect, it } from 'vitest';
import { findUnseen } from './rule-poll.ts';
import { RuleSet } from './rule-set.ts';
import { makeRule, OTHER, PROJECT } from './rule.test-support.ts';

const RULE = makeRule();
const remove = (version: number) => ({ op: 'delete', ruleId: RULE.id, projectId: PROJECT, version }) as const;

/** Names of the rules that are asked about a project's entries. */
function inForce(rules: RuleSet, projectId = PROJECT): string[] {
  return (rules.ofProject(projectId)?.rules ?? []).map(({ rule }) => rule.name);
}

describe('a set of rules', () => {
  it('asks the enabled rules of the project, as the last change left them', () => {
    const rules = new RuleSet([]);
    expect(rules.ofProject(PROJECT)).toBeUndefined();
    rules.apply({ op: 'put', rule: RULE });
    expect(inForce(rules)).toEqual(['many errors']);
    expect(inForce(rules, OTHER)).toEqual([]);
    rules.apply({ op: 'put', rule: makeRule({ version: 2, name: 'renamed' }) });
    expect(inForce(rules)).toEqual(['renamed']);
    rules.apply({ op: 'put', rule: makeRule({ version: 3, generation: 3, enabled: false }) });
    expect(inForce(rules)).toEqual([]);
    rules.apply({ op: 'put', rule: makeRule({ version: 4, generation: 4 }) });
    expect(inForce(rules)).toEqual(['many errors']);
    rules.apply(remove(5));
    expect(inForce(rules)).toEqual([]);
    expect(rules.versions().size).toBe(0);
  });

  it('a change that is not newer than the rule changes nothing, and a deleted rule does not come back', () => {
    const rules = new RuleSet([{ rule: makeRule({ version: 4 }), fields: {} }]);
    expect(rules.apply({ op: 'put', rule: makeRule({ version: 4, name: 'late' }) })).toBeUndefined();
    expect(rules.apply(remove(3))).toBeUndefined();
    expect(inForce(rules)).toEqual(['many errors']);
    expect(rules.apply(remove(5))?.dropped?.rule.version).toBe(4);
    expect(rules.apply({ op: 'put', rule: makeRule({ version: 5, name: 'late' }) })).toBeUndefined();
    expect(rules.ofProject(PROJECT)).toBeUndefined();
    // Deleted before its creation arrived.
    const others = new RuleSet([]);
    others.apply(remove(2));
    expect(others.apply({ op: 'put', rule: RULE })).toBeUndefined();
  });

  it('drops the window when the generation changes or the rule is disabled, and only then', () => {
    const rules = new RuleSet([{ rule: RULE, fields: { clock: '5', b5: '2', counted: '2' } }]);
    const compiled = rules.ofProject(PROJECT);
    const [watched] = compiled?.rules ?? [];
    const renamed = rules.apply({ op: 'put', rule: makeRule({ version: 2, name: 'renamed' }) });
    expect(renamed).toEqual({ dropped: undefined, current: watched, isRecounted: false });
    expect(rules.ofProject(PROJECT)).toBe(compiled);
    const changed = rules.apply({ op: 'put', rule: makeRule({ version: 3, generation: 3 }) });
    expect(changed?.dropped).toBe(watched);
    expect(changed?.current).not.toBe(watched);
    const disabled = rules.apply({
      op: 'put',
      rule: makeRule({ version: 4, generation: 4, enabled: false }),
    });
    expect(disabled?.dropped).toBe(changed?.current);
  });

  it('a rule that cannot be compiled does not stop the others', () => {
    const broken: string[] = [];
    const rules = new RuleSet([], (rule) => broken.push(rule.name));
    const { condition } = RULE;
    // As a newer version might write them.
    const operator = 'sounds_like' as 'regex';
    const strange = { ...condition, field: 'message', operator };
    const endless = { ...condition, timeWindow: 'forever' };
    rules.apply({ op: 'put', rule: makeRule({ id: 'a', name: 'strange', condition: strange }) });
    rules.apply({ op: 'put', rule: makeRule({ id: 'b', name: 'sound' }) });
    rules.apply({ op: 'put', rule: makeRule({ id: 'c', name: 'endless', condition: endless }) });
    expect(inForce(rules)).toEqual(['sound']);
    expect(broken).toEqual(['strange', 'endless']);
  });

  it('names the rules that fire', () => {
    const firing = { clock: '5', b5: '9', counted: '9', startedAt: '5', peak: '9', state: 'firing' };
    const rules = new RuleSet([
      { rule: RULE, fields: firing },
      { rule: makeRule({ id: 'b' }), fields: {} },
    ]);
    expect([...rules.firing()].map(({ rule }) => rule.id)).toEqual([RULE.id]);
  });
});

describe('the comparison with the control plane', () => {
  it('sends what the shard has not seen, and takes back what is gone', () => {
    const kept = [
      makeRule({ id: 'same', version: 2 }),
      makeRule({ id: 'newer', version: 3 }),
      makeRule({ id: 'missing', version: 1 }),
    ];
    const rules = new RuleSet([
      { rule: makeRule({ id: 'same', version: 2 }), fields: {} },
      { rule: makeRule({ id: 'newer', version: 2 }), fields: {} },
      { rule: makeRule({ id: 'gone', version: 7 }), fields: {} },
    ]);
    expect(findUnseen(rules, rules.versions(), kept)).toEqual([
      { op: 'put', rule: kept[1] },
      { op: 'put', rule: kept[2] },
      { op: 'delete', ruleId: 'gone', projectId: PROJECT, version: 7 },
    ]);
  });

  it('a rule made or deleted while the control plane was being read is left alone', () => {
    const rules = new RuleSet([{ rule: makeRule({ id: 'deleted' }), fields: {} }]);
    const known = rules.versions();
    rules.apply({ op: 'put', rule: makeRule({ id: 'made' }) });
    rules.apply({ op: 'delete', ruleId: 'deleted', projectId: PROJECT, version: 2 });
    expect(findUnseen(rules, known, [makeRule({ id: 'deleted' })])).toEqual([]);
  });
});
