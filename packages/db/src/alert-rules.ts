import { ApiError } from '@logpond/schema/api-error';
import type { AlertRuleDraft } from '@logpond/schema/alert-rule';
import { parseDurationMs } from '@logpond/schema/duration';
import { assertPatternRoom } from './alert-pattern-limit.ts';
import { hashSecrets, maskSecrets, resealSecrets, sealSecrets } from './alert-rule-secrets.ts';
import { childrenKey, documentKey } from './control-store.ts';
import type { Actor, Check, ControlStore, Write } from './control-store.ts';
import type { AlertRuleDocument, RuleChange } from './rule-change.ts';
import type { RuleStream } from './rule-stream.ts';
import { SealError } from './sealed-secret.ts';
import type { SecretSealer } from './sealed-secret.ts';
import { shardOf } from './shard-map.ts';
import { StoreError } from './store-error.ts';
import { createUuidV7 } from './uuid-v7.ts';

const RULES_PER_PROJECT_MAX = 500;
/** As many as can be listed at once; the alert worker holds all rules of a shard in memory. */
const RULES_PER_SHARD_MAX = 10_000;
/** Writers of one rule at the same moment. */
const UPDATE_ATTEMPTS = 5;

type Options = {
  now?: () => number;
  /** Where the alert worker learns of changes. */
  stream: RuleStream;
  /** Shards of the log streams, over which the projects are spread. */
  shards: number;
  /** Without it, rules with secrets are refused. */
  sealer?: SecretSealer | undefined;
};

/** What a rotation of keys did. `unreadable`: rules with a secret that none of the keys opens. */
export type ResealOutcome = {
  rules: number;
  resealed: number;
  unreadable: { ruleId: string; reason: string }[];
};

/**
 * Alert rules of projects: kept in the control plane, and every change told to the alert worker through the stream of
 * the entries before it is answered. The secrets of webhooks are sealed before they are kept.
 */
export class AlertRules {
  readonly #control: ControlStore;
  readonly #now: () => number;
  readonly #stream: RuleStream;
  readonly #shards: number;
  readonly #sealer: SecretSealer | undefined;

  constructor(control: ControlStore, options: Options) {
    this.#control = control;
    this.#now = options.now ?? Date.now;
    this.#stream = options.stream;
    this.#shards = options.shards;
    this.#sealer = options.sealer;
  }

  /**
   * Creates a rule. Entries admitted after the return meet it.
   *
   * @throws {ApiError} `NOT_FOUND` when there is no such project; `CONFLICT` when it has 500 rules, or 20 with a
   *   regular expression; `VALIDATION_ERROR` for secrets that cannot be sealed or are too large; `UNAVAILABLE` when it
   *   is kept but the alert worker could not be told.
   */
  async create(actor: Actor, projectId: string, draft: AlertRuleDraft): Promise<AlertRuleDocument> {
    assertPatternRoom(draft, await this.list(projectId));
    const atMs = this.#now();
    const createdAt = new Date(atMs).toISOString();
    const id = createUuidV7(atMs);
    const notifications = sealSecrets(this.#sealer, id, draft);
    const head = { version: 1, generation: 1, id, projectId };
    const document: AlertRuleDocument = { ...head, ...draft, notifications, createdAt, updatedAt: createdAt };
    const projectExists: Check = { op: 'exists', key: documentKey('project', projectId) };
    const hasRoom: Check = { op: 'below', key: ofProjectKey(projectId), limit: RULES_PER_PROJECT_MAX };
    const shardHasRoom: Check = { op: 'below', key: this.#ofShardKey(projectId), limit: RULES_PER_SHARD_MAX };
    const outcome = await this.#control.transact({
      atMs,
      checks: [projectExists, hasRoom, shardHasRoom],
      writes: [
        { op: 'put', key: documentKey('alert-rule', id), document },
        ...this.#parents(projectId).map((key): Write => ({ op: 'add', key, member: id })),
      ],
      change: { actor, action: 'alert-rule.create', ...describeChange(id, undefined, document) },
    });
    if (outcome.committed) {
      await this.#publish({ op: 'put', rule: document });
      return document;
    }
    if (outcome.failed === projectExists)
      throw new ApiError('NOT_FOUND', { public: 'there is no such project' });
    const [limit, where] =
      outcome.failed === hasRoom
        ? [RULES_PER_PROJECT_MAX, 'in a project']
        : [RULES_PER_SHARD_MAX, 'in the projects of one shard'];
    throw new ApiError('CONFLICT', {
      public: `expected at most ${limit} alert rules ${where}, got one more`,
    });
  }

  /** The project's rules, oldest first. */
  async list(projectId: string): Promise<AlertRuleDocument[]> {
    return this.#listChildren(ofProjectKey(projectId));
  }

  /** The rules of all projects of a shard. */
  async listOfShard(shard: number): Promise<AlertRuleDocument[]> {
    return this.#listChildren(ofShardKey(shard));
  }

  /** The rule, or undefined when the project has no such rule. */
  async find(projectId: string, id: string): Promise<AlertRuleDocument | undefined> {
    const document = await this.#control.read<AlertRuleDocument>('alert-rule', id);
    return document?.projectId === projectId ? document : undefined;
  }

  /**
   * Changes a rule. `change` gets it with `***` for every secret, gives back the whole of what it is to be, and may be
   * called again when somebody else changes the rule at the same moment; where `***` is left, the secret is.
   *
   * Its counters begin anew when what it counts, or whether it does, is changed.
   *
   * @throws as `create`, and whatever `change` throws; `CONFLICT` after 5 such moments.
   */
  async update(
    actor: Actor,
    projectId: string,
    id: string,
    change: (draft: AlertRuleDraft) => AlertRuleDraft,
  ): Promise<AlertRuleDocument> {
    for (let attempt = 0; attempt < UPDATE_ATTEMPTS; attempt += 1) {
      const before = await this.#findOrThrow(projectId, id);
      const draft = change({ ...readDraft(before), notifications: maskSecrets(before.notifications) });
      assertPatternRoom(draft, await this.list(projectId), id);
      const notifications = sealSecrets(this.#sealer, id, draft, before.notifications);
      const after = this.#follow(before, { ...draft, notifications });
      if (await this.#replace(actor, 'alert-rule.update', before, after)) return after;
    }
    throw new ApiError('CONFLICT', {
      public: 'somebody else changed this rule at the same moment; try again',
    });
  }

  /** Deletes a rule; its history stays. @throws {ApiError} `NOT_FOUND`, `CONFLICT`, `UNAVAILABLE` as in `update`. */
  async remove(actor: Actor, projectId: string, id: string): Promise<void> {
    for (let attempt = 0; attempt < UPDATE_ATTEMPTS; attempt += 1) {
      const before = await this.#findOrThrow(projectId, id);
      const key = documentKey('alert-rule', id);
      const { committed } = await this.#control.transact({
        atMs: this.#now(),
        checks: [{ op: 'version', key, version: before.version }],
        writes: [
          { op: 'delete', key },
          ...this.#parents(projectId).map((parent): Write => ({ op: 'remove', key: parent, member: id })),
        ],
        change: { actor, action: 'alert-rule.delete', ...describeChange(id, before, undefined) },
      });
      if (!committed) continue;
      await this.#publish({ op: 'delete', ruleId: id, projectId, version: before.version + 1 });
      return;
    }
    throw new ApiError('CONFLICT', {
      public: 'somebody else changed this rule at the same moment; try again',
    });
  }

  /**
   * Brings every secret under the first key, so that the others can be taken out of SECRET_KEYS. May be repeated.
   *
   * @throws {ApiError} `UNAVAILABLE`, {StoreError} `unavailable`: some are done.
   */
  async resealAll(actor: Actor, sealer: SecretSealer): Promise<ResealOutcome> {
    const outcome: ResealOutcome = { rules: 0, resealed: 0, unreadable: [] };
    for (let shard = 0; shard < this.#shards; shard += 1) {
      for (const rule of await this.listOfShard(shard)) {
        outcome.rules += 1;
        try {
          if (await this.#reseal(actor, sealer, rule)) outcome.resealed += 1;
        } catch (error) {
          if (!(error instanceof SealError)) throw error;
          outcome.unreadable.push({ ruleId: rule.id, reason: error.message });
        }
      }
    }
    return outcome;
  }

  async #reseal(actor: Actor, sealer: SecretSealer, rule: AlertRuleDocument): Promise<boolean> {
    for (let attempt = 0; attempt < UPDATE_ATTEMPTS; attempt += 1) {
      const before = attempt === 0 ? rule : await this.find(rule.projectId, rule.id);
      const notifications = before && resealSecrets(sealer, before.id, before.notifications);
      if (before === undefined || notifications === undefined) return false;
      const after = { ...before, version: before.version + 1, notifications };
      if (await this.#replace(actor, 'alert-rule.reseal', before, after)) return true;
    }
    throw new ApiError('CONFLICT', { public: `the rule ${rule.id} is changed all the time; try again` });
  }

  /** The next version of a rule. */
  #follow(before: AlertRuleDocument, draft: AlertRuleDraft): AlertRuleDocument {
    const version = before.version + 1;
    const { id, projectId, createdAt } = before;
    const generation = describeCounting(draft) === describeCounting(before) ? before.generation : version;
    const updatedAt = new Date(this.#now()).toISOString();
    return { version, generation, id, projectId, ...draft, createdAt, updatedAt };
  }

  /** False: it is not the version that was read any more. */
  async #replace(
    actor: Actor,
    action: string,
    before: AlertRuleDocument,
    after: AlertRuleDocument,
  ): Promise<boolean> {
    const key = documentKey('alert-rule', before.id);
    const { committed } = await this.#control.transact({
      atMs: this.#now(),
      checks: [{ op: 'version', key, version: before.version }],
      writes: [{ op: 'put', key, document: after }],
      change: { actor, action, ...describeChange(before.id, before, after) },
    });
    if (committed) await this.#publish({ op: 'put', rule: after });
    return committed;
  }

  /** What is kept is kept: the alert worker compares all rules every 30 s and finds what it was not told. */
  async #publish(change: RuleChange): Promise<void> {
    try {
      await this.#stream.publish(change);
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      throw new ApiError('UNAVAILABLE', {
        public:
          'the change is saved, but whether the alert worker knows is uncertain; it will within a minute. Look at the rules before sending it again',
        cause: error,
      });
    }
  }

  async #findOrThrow(projectId: string, id: string): Promise<AlertRuleDocument> {
    const document = await this.find(projectId, id);
    if (document === undefined) throw new ApiError('NOT_FOUND', { public: 'no such alert rule' });
    return document;
  }

  async #listChildren(key: string): Promise<AlertRuleDocument[]> {
    const ids = await this.#control.listChildren(key);
    const documents = await this.#control.readMany<AlertRuleDocument>('alert-rule', ids);
    return documents.filter((document) => document !== undefined);
  }

  #parents(projectId: string): string[] {
    return [ofProjectKey(projectId), this.#ofShardKey(projectId)];
  }

  #ofShardKey(projectId: string): string {
    return ofShardKey(shardOf(projectId, this.#shards));
  }
}

function ofProjectKey(projectId: string): string {
  return childrenKey('alert-rules', 'project', projectId);
}

function ofShardKey(shard: number): string {
  return childrenKey('alert-rules', 'shard', String(shard));
}

/** What of a rule its writers decide. */
function readDraft(document: AlertRuleDocument): AlertRuleDraft {
  const { name, enabled, condition, notifications, service, renotifyAfter, notifyResolved } = document;
  return { name, enabled, condition, notifications, service, renotifyAfter, notifyResolved };
}

/** Equal while the counters of a rule go on. */
function describeCounting({ condition, service, enabled }: AlertRuleDraft): string {
  const { field, operator, value, threshold, timeWindow } = condition;
  return JSON.stringify([
    [field, operator, value ?? null, threshold, parseDurationMs(timeWindow) ?? timeWindow],
    [service ?? null, enabled],
  ]);
}

function describeChange(
  id: string,
  before: AlertRuleDocument | undefined,
  after: AlertRuleDocument | undefined,
): { target: { kind: 'alert-rule'; id: string }; before?: unknown; after?: unknown } {
  const hide = (rule: AlertRuleDocument): unknown => ({
    ...rule,
    notifications: hashSecrets(rule.notifications),
  });
  return {
    target: { kind: 'alert-rule', id },
    ...(before === undefined ? {} : { before: hide(before) }),
    ...(after === undefined ? {} : { after: hide(after) }),
  };
}
