import { hash } from 'node:crypto';
import type { AlertRuleDraft } from '@logpond/schema/alert-rule';
import { ApiError } from '@logpond/schema/api-error';
import { childrenKey, documentKey } from './control-store.ts';
import type { Actor, Check, ControlStore, Versioned } from './control-store.ts';
import { createUuidV7 } from './uuid-v7.ts';

/** A rule as it is kept. Its state and counters are not here: they live in the shard's slot. */
export type AlertRuleDocument = Versioned &
  AlertRuleDraft & { id: string; projectId: string; createdAt: string; updatedAt: string };

const RULES_PER_PROJECT_MAX = 500;

/** Alert rules of projects. */
export class AlertRules {
  readonly #control: ControlStore;
  readonly #now: () => number;

  constructor(control: ControlStore, options: { now?: () => number } = {}) {
    this.#control = control;
    this.#now = options.now ?? Date.now;
  }

  /**
   * Creates a rule.
   *
   * @throws {ApiError} `NOT_FOUND` when there is no such project; `CONFLICT` when it has 500 rules.
   */
  async create(actor: Actor, projectId: string, draft: AlertRuleDraft): Promise<AlertRuleDocument> {
    const atMs = this.#now();
    const createdAt = new Date(atMs).toISOString();
    const id = createUuidV7(atMs);
    const document: AlertRuleDocument = {
      version: 1,
      id,
      projectId,
      ...draft,
      createdAt,
      updatedAt: createdAt,
    };
    const ofProject = ofProjectKey(projectId);
    const projectExists: Check = { op: 'exists', key: documentKey('project', projectId) };
    const outcome = await this.#control.transact({
      atMs,
      checks: [projectExists, { op: 'below', key: ofProject, limit: RULES_PER_PROJECT_MAX }],
      writes: [
        { op: 'put', key: documentKey('alert-rule', id), document },
        { op: 'add', key: ofProject, member: id },
      ],
      change: {
        actor,
        action: 'alert-rule.create',
        target: { kind: 'alert-rule', id },
        after: hideSecrets(document),
      },
    });
    if (outcome.committed) return document;
    if (outcome.failed === projectExists)
      throw new ApiError('NOT_FOUND', { public: 'there is no such project' });
    throw new ApiError('CONFLICT', {
      public: `expected at most ${RULES_PER_PROJECT_MAX} alert rules in a project, got one more`,
    });
  }

  /** The project's rules, oldest first. */
  async list(projectId: string): Promise<AlertRuleDocument[]> {
    const ids = await this.#control.listChildren(ofProjectKey(projectId));
    const documents = await this.#control.readMany<AlertRuleDocument>('alert-rule', ids);
    return documents.filter((document) => document !== undefined);
  }
}

function ofProjectKey(projectId: string): string {
  return childrenKey('alert-rules', 'project', projectId);
}

/** The rule for the change log: a webhook's secret and the values of its headers as SHA-256. */
function hideSecrets(rule: AlertRuleDocument): unknown {
  const notifications = rule.notifications.map((notification) => {
    if (notification.type !== 'webhook') return notification;
    const { url, headers, secret } = notification.config;
    const names = Object.entries(headers ?? {}).map(([name, value]) => [name, hash('sha256', value, 'hex')]);
    const hidden = secret === undefined ? undefined : hash('sha256', secret, 'hex');
    return {
      type: 'webhook',
      config: { url, headers: Object.fromEntries(names) as unknown, secret: hidden },
    };
  });
  return { ...rule, notifications };
}
