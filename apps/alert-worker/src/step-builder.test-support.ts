import type { RuleChange } from '@logpond/db/rule-change';
import type { StreamBlock } from '@logpond/db/stream-block';
import { RuleSet } from './rule-set.ts';
import { makeRule, makeStreamBlock, NOW_S } from './rule.test-support.ts';
import type { TestRun } from './rule.test-support.ts';
import { StepBuilder } from './step-builder.ts';
import type { Skipped, Unread } from './step-builder.ts';

const PLACE = { done: 1, controls: 0 };

/** A builder that reads a stream put together here. */
export class Rig {
  /** What the clock of the patterns' work goes on by, each time it is read. */
  cpuStepMs = 0;
  cpuMs = 0;
  readonly rules = new RuleSet([], undefined, () => (this.cpuMs += this.cpuStepMs));
  readonly unread: Unread[] = [];
  readonly skipped: Skipped[] = [];
  readonly builder = new StepBuilder(PLACE, {
    rules: this.rules,
    nowMs: () => (NOW_S + 100) * 1_000,
    onUnread: (unread) => this.unread.push(unread),
    onSkipped: (skipped) => this.skipped.push(skipped),
  });

  change(...changes: RuleChange[]): void {
    for (const change of changes) this.builder.take({ number: this.builder.place.controls + 1, change });
  }

  send(...runs: TestRun[]): StreamBlock {
    const block = makeStreamBlock(this.builder.place.done, runs);
    this.builder.take(block);
    return block;
  }

  /** What is stored of a rule's window after the step. */
  counted(ruleId = makeRule().id): string | undefined {
    return this.builder.finish()?.step.windows.get(ruleId)?.set['counted'];
  }
}

export const put = (rule = makeRule()): RuleChange => ({ op: 'put', rule });
export const text = (value: string): Partial<ReturnType<typeof makeRule>> => ({
  condition: { ...makeRule().condition, field: 'message', operator: 'contains', value },
});
