import { describe, expect, it } from 'vitest';
import { MessageRules } from './message-rules.ts';
import { readQuestion } from './text-test.ts';

/** Characters without case of all lengths in UTF-8, told apart by the seed. */
function createLiteral(seed: number): string {
  const at = (index: number, range: number): number => (seed * 7919 + index * 104_729) % range;
  const characters = Array.from({ length: 12 }, (_, index) =>
    index % 3 === 0
      ? String.fromCodePoint(0x4e00 + at(index, 20_000))
      : index % 3 === 1
        ? String.fromCodePoint(0x20000 + at(index, 40_000))
        : String.fromCodePoint(0x21 + at(index, 0x1f)),
  );
  return `${characters.join('').slice(0, 14)}k${characters.slice(0, 2).join('')}i`;
}

describe('MessageRules', () => {
  it('takes the 500 rules of a project whatever they look for', () => {
    const rules = Array.from({ length: 500 }, (_, index) => ({
      index,
      service: undefined,
      question: readQuestion({ operator: 'contains', value: createLiteral(index) }),
    }));
    expect(() => new MessageRules(rules)).not.toThrow();
  });
});
