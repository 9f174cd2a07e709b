import { hash } from 'node:crypto';
import type { AlertRuleDocument } from '@logpond/db/rule-change';
import type { Notice, NoticeItem } from './channels/notice.ts';
import { escapeHtml, toLine, toTime } from './mail-text.ts';

/** A mail, ready to be sent: all of it is safe where it stands. */
export type MailMessage = {
  to: string;
  subject: string;
  text: string;
  html: string;
  messageId: string;
  /** The mail that this one belongs to, for readers that show threads. */
  references: string | undefined;
  headers: { key: string; value: string }[];
};

const NAME_LENGTH_MAX = 100;
/** Notifications that one mail lists; the rest are counted. */
const ITEMS_LISTED_MAX = 100;

/** Writes the mail of a notification. The same notice and recipient give the same mail. @param domain of MAIL_FROM. */
export function composeMail(notice: Notice, to: string, domain: string): MailMessage {
  const [first] = notice.items;
  const lines = [summarise(notice), ''];
  const facts = listFacts(notice);
  lines.push(...facts.map(([name, value]) => `${`${name}:`.padEnd(13)}${value}`));
  const listed = listItems(notice);
  if (listed.length > 0) lines.push('', 'Notifications:', ...listed.map((line) => `  ${line}`));
  const samples = notice.samples.map(
    ({ time, level, service, message }) =>
      `${toLine(time, 40)} ${toLine(level, 20).toUpperCase()} ${toLine(service, NAME_LENGTH_MAX)}: ${toLine(message)}`,
  );
  if (samples.length > 0) lines.push('', 'Latest entries:', ...samples.map((line) => `  ${line}`));
  lines.push('', `${nameSearch(notice)}:`, notice.search.url, '', EXPLANATION, '');
  const isAlone = notice.items.length === 1 && !notice.isTest;
  return {
    to,
    subject: writeSubject(notice),
    text: lines.join('\n'),
    html: writeHtml(notice, facts, listed, samples),
    messageId: isAlone ? nameMail(first, to, domain) : `<${notice.id}.${digest(to)}@${domain}>`,
    references:
      isAlone && first.kind === 'fired'
        ? undefined
        : nameMail({ ...first, kind: 'fired', repeat: 0 }, to, domain),
    headers: [
      { key: 'Auto-Submitted', value: 'auto-generated' },
      ...listFirings(notice).map((value) => ({ key: 'X-Logpond-Firing', value })),
    ],
  };
}

const EXPLANATION =
  'This mail was sent because an alert rule of Logpond lists your address. Of one rule there is at most one mail a ' +
  'minute; what comes meanwhile is in the next.';

/** The id of each firing that the mail tells of, once: start, reminders and end may share a mail. */
function listFirings({ items }: Notice): string[] {
  const ids = new Set(items.map(({ firingId }) => toLine(firingId, 100)));
  return [...ids].slice(0, ITEMS_LISTED_MAX);
}

/** What the link leads to, and no more than that. */
function nameSearch({ search }: Notice): string {
  return search.isExact ? 'All entries' : 'Entries of that time, those that matched among them';
}

/** By firing, kind, repeat and recipient: a mail that is sent again has the same. */
function nameMail({ firingId, kind, repeat }: NoticeItem, to: string, domain: string): string {
  return `<${firingId}.${kind}.${repeat}.${digest(to)}@${domain}>`;
}

function digest(text: string): string {
  return hash('sha256', text, 'hex').slice(0, 16);
}

function compare({ count, rule }: { count: number; rule: Pick<AlertRuleDocument, 'condition'> }): string {
  const { threshold, timeWindow } = rule.condition;
  return `${count} ${count >= threshold ? '≥' : '<'} ${threshold} in ${toLine(timeWindow, 20)}`;
}

function writeSubject({ rule, project, items, isTest }: Notice): string {
  const last = items.at(-1) ?? items[0];
  const tag = isTest ? 'TEST' : last.kind === 'resolved' ? 'RESOLVED' : 'FIRING';
  const several = items.length > 1 ? `${items.length} notifications, last ` : '';
  const still = items.length === 1 && last.kind === 'renotified' ? 'still ' : '';
  const name = toLine(rule.name, NAME_LENGTH_MAX);
  const what = compare({ count: last.count, rule });
  return `[${tag}] ${name}: ${several}${still}${what} (${toLine(project.name, NAME_LENGTH_MAX)})`;
}

/** The first line: what happened. */
function summarise({ rule, items, isTest }: Notice): string {
  const name = `"${toLine(rule.name, NAME_LENGTH_MAX)}"`;
  const { timeWindow, threshold } = rule.condition;
  if (isTest) return `This is a test of the alert rule ${name}; nothing fired.`;
  const [first] = items;
  if (items.length > 1) {
    return `The alert rule ${name} has ${items.length} notifications since ${toTime(first.atMs)}.`;
  }
  const matched = `${first.count} ${first.count === 1 ? 'entry' : 'entries'} matched within ${toLine(timeWindow, 20)}`;
  switch (first.kind) {
    case 'fired':
      return `The alert rule ${name} fired: ${matched}, its threshold is ${threshold}.`;
    case 'renotified':
      return `The alert rule ${name} is still firing: ${matched}, its threshold is ${threshold}.`;
    case 'resolved':
      return `The alert rule ${name} is resolved: ${matched}, its threshold is ${threshold}.`;
  }
}

function listFacts({ rule, project, items }: Notice): [name: string, value: string][] {
  const last = items.at(-1) ?? items[0];
  return [
    ['Condition', describeCondition(rule)],
    ['Count', String(last.count)],
    ...(last.peak > last.count ? [['Peak', String(last.peak)] as [string, string]] : []),
    ['Threshold', String(rule.condition.threshold)],
    ['Window', toLine(rule.condition.timeWindow, 20)],
    ['Started at', toTime(last.startedAtMs)],
    ...(last.resolvedAtMs === null ? [] : [['Resolved at', toTime(last.resolvedAtMs)] as [string, string]]),
    ['Project', toLine(project.name, NAME_LENGTH_MAX)],
    ['Firing', last.firingId],
  ];
}

function describeCondition({ condition, service }: AlertRuleDocument): string {
  const { field, operator, value } = condition;
  const shown = value === undefined ? '' : ` ${toLine(JSON.stringify(value), 200)}`;
  const where = typeof service !== 'string' ? '' : ` in service ${toLine(JSON.stringify(service), 120)}`;
  return `${toLine(field, 200)} ${operator.replaceAll('_', ' ')}${shown}${where}`;
}

/** A line for each of several notifications. */
function listItems({ items, rule }: Notice): string[] {
  if (items.length === 1) return [];
  const listed = items.slice(0, ITEMS_LISTED_MAX).map((item) => {
    const what = item.kind === 'fired' ? 'fired' : item.kind === 'resolved' ? 'resolved' : 'still firing';
    return `${toTime(item.atMs)} ${what}: ${compare({ count: item.count, rule })}, firing ${item.firingId}`;
  });
  const left = items.length - listed.length;
  return left === 0 ? listed : [...listed, `and ${left} more`];
}

function writeHtml(
  notice: Notice,
  facts: readonly [string, string][],
  listed: readonly string[],
  samples: readonly string[],
): string {
  const rows = facts.map(
    ([name, value]) =>
      `<tr><th align="left">${escapeHtml(name)}</th><td dir="auto">${escapeHtml(value)}</td></tr>`,
  );
  const list = (title: string, lines: readonly string[]): string =>
    lines.length === 0
      ? ''
      : `<p>${title}</p>\n<ul>${lines.map((line) => `<li dir="auto"><code>${escapeHtml(line)}</code></li>`).join('\n')}</ul>\n`;
  return `<!doctype html>
<html><head><meta charset="utf-8"></head><body>
<p dir="auto"><strong>${escapeHtml(summarise(notice))}</strong></p>
<table cellpadding="4">${rows.join('\n')}</table>
${list('Notifications:', listed)}${list('Latest entries:', samples)}<p><a href="${escapeHtml(notice.search.url)}">${nameSearch(notice)}</a></p>
<p><small>${escapeHtml(EXPLANATION)}</small></p>
</body></html>
`;
}
