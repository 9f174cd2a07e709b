import { RETENTION_DAYS_DEFAULT } from '@logpond/schema/account';
import { ApiError } from '@logpond/schema/api-error';
import { ConfirmedCache } from './confirmed-cache.ts';
import { childrenKey, documentKey, indexKey } from './control-store.ts';
import type { Actor, Check, ControlStore, Versioned } from './control-store.ts';
import { slugify } from './slug.ts';
import { createUuidV7, isUuid } from './uuid-v7.ts';

export type Project = {
  id: string;
  organizationId: string;
  name: string;
  slug: string;
  description: string | null;
  /** Days that entries can be found, 1–3650. */
  retentionDays: number;
  createdAt: string;
  updatedAt: string;
};

export type ProjectDocument = Versioned & Project;

const PROJECTS_PER_ORGANIZATION_MAX = 1_000;
const CACHE_ENTRIES_MAX = 10_000;
const HIT_KEPT_MS = 5_000;
const MISS_KEPT_MS = 1_000;

/** Projects, the units that hold logs. One instance a process: it listens to changes as long as the store lives. */
export class Projects {
  readonly #control: ControlStore;
  readonly #now: () => number;
  readonly #found = new ConfirmedCache<Project>(CACHE_ENTRIES_MAX);
  readonly #missing = new ConfirmedCache<null>(CACHE_ENTRIES_MAX);
  /** Counts what the caches were told to forget, so that an answer under way meanwhile is not kept. */
  #forgotten = 0;

  constructor(control: ControlStore, options: { now?: () => number } = {}) {
    this.#control = control;
    this.#now = options.now ?? Date.now;
    control.onChanged((changed) => {
      for (const { key } of changed)
        if (key.startsWith('project:')) this.#forget(key.slice('project:'.length));
    });
  }

  /**
   * Creates a project. Without a slug it gets one from its name; slugs are unique in the organization.
   *
   * @throws {ApiError} `NOT_FOUND` when there is no such organization; `CONFLICT` when the slug is taken or the
   * organization has 1,000 projects.
   */
  async create(
    actor: Actor,
    input: {
      organizationId: string;
      name: string;
      slug?: string | undefined;
      description?: string | null | undefined;
      retentionDays?: number | undefined;
    },
  ): Promise<Project> {
    const atMs = this.#now();
    const project = draftProject(input, atMs);
    const { id, organizationId, slug } = project;
    const siblings = childrenKey('projects', 'organization', organizationId);
    const slugKey = indexKey('project', 'slug', `${organizationId}/${slug}`);
    const hasParent: Check = { op: 'exists', key: documentKey('organization', organizationId) };
    const hasRoom: Check = { op: 'below', key: siblings, limit: PROJECTS_PER_ORGANIZATION_MAX };
    const document: ProjectDocument = { version: 1, ...project };
    const outcome = await this.#control.transact({
      atMs,
      checks: [hasParent, { op: 'absent', key: slugKey }, hasRoom],
      writes: [
        { op: 'put', key: documentKey('project', id), document },
        { op: 'point', key: slugKey, value: id },
        { op: 'add', key: siblings, member: id },
      ],
      change: { actor, action: 'project.create', target: { kind: 'project', id }, after: project },
    });
    if (outcome.committed) return project;
    if (outcome.failed === hasParent)
      throw new ApiError('NOT_FOUND', { public: 'there is no such organization' });
    if (outcome.failed === hasRoom) {
      throw new ApiError('CONFLICT', {
        public: `expected at most ${PROJECTS_PER_ORGANIZATION_MAX} projects in an organization, got one more`,
      });
    }
    throw new ApiError('CONFLICT', {
      public: `the slug "${slug}" is taken in this organization; choose another one`,
    });
  }

  /** The organization's projects, oldest first. */
  async listByOrganization(organizationId: string): Promise<Project[]> {
    const ids = await this.#control.listChildren(childrenKey('projects', 'organization', organizationId));
    const documents = await this.#control.readMany<ProjectDocument>('project', ids);
    return documents.flatMap((document) => (document === undefined ? [] : [viewProject(document)]));
  }

  /**
   * The project, whoever asks. At most 5 s old; that there is none, at most 1 s.
   *
   * @throws {StoreError} `unavailable`
   */
  async find(id: string): Promise<Project | undefined> {
    if (!isUuid(id)) return undefined;
    const atMs = this.#now();
    const known = this.#found.getFresh(id, atMs, HIT_KEPT_MS);
    if (known !== undefined) return known.value;
    if (this.#missing.getFresh(id, atMs, MISS_KEPT_MS) !== undefined) return undefined;
    const forgotten = this.#forgotten;
    const document = await this.#control.read<ProjectDocument>('project', id);
    const project = document && viewProject(document);
    if (forgotten === this.#forgotten) {
      if (project === undefined) this.#missing.set(id, null, atMs);
      else this.#found.set(id, project, atMs);
    }
    return project;
  }

  #forget(id: string): void {
    this.#forgotten += 1;
    this.#found.delete(id);
    this.#missing.delete(id);
  }
}

function draftProject(input: Parameters<Projects['create']>[1], atMs: number): Project {
  const createdAt = new Date(atMs).toISOString();
  return {
    id: createUuidV7(atMs),
    organizationId: input.organizationId,
    name: input.name,
    slug: input.slug ?? slugify(input.name),
    description: input.description ?? null,
    retentionDays: input.retentionDays ?? RETENTION_DAYS_DEFAULT,
    createdAt,
    updatedAt: createdAt,
  };
}

function viewProject({ version: _version, ...project }: ProjectDocument): Project {
  return project;
}
