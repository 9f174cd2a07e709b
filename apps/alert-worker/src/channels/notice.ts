import type { OutboxItem } from '@logpond/db/alert-windows';
import type { AlertRuleDocument } from '@logpond/db/rule-change';
import type { SearchLink } from './search-link.ts';

/** An entry as a notification shows it. */
export type SampleEntry = {
  time: string;
  level: string;
  service: string;
  message: string;
};

/** What one notification tells of a firing. */
export type NoticeItem = Omit<OutboxItem, 'rule' | 'firedCount'>;

/** All that a channel needs to tell a recipient of one firing, or of several of one rule. */
export type Notice = {
  /** Of the job; the same for each repeat, so receivers can tell repeats. */
  id: string;
  /** As it was in force. */
  rule: AlertRuleDocument;
  project: { id: string; name: string };
  /** In order of time, at least one. Of a test: what it would look like. */
  items: [NoticeItem, ...NoticeItem[]];
  samples: readonly SampleEntry[];
  /** The search that the rule stands for, as far as its parameters can say that. */
  search: SearchLink;
  isTest: boolean;
};

/** What became of an attempt to send. `answer` is what the other server said, fit to be shown to users. */
export type Sent =
  | { status: 'sent'; answer: string }
  | { status: 'retry' | 'failed'; answer: string }
  | { status: 'not_configured'; answer: null };
