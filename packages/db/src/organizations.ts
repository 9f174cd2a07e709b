import type { Role } from '@logpond/schema/account';
import { ApiError } from '@logpond/schema/api-error';
import { childrenKey, documentKey, indexKey } from './control-store.ts';
import type { Actor, Check, ControlStore, Versioned, Write } from './control-store.ts';
import { slugify } from './slug.ts';
import { createUuidV7 } from './uuid-v7.ts';

export type Organization = {
  id: string;
  name: string;
  slug: string;
  description: string | null;
  createdAt: string;
  updatedAt: string;
};

type OrganizationDocument = Versioned & Organization;
type MemberDocument = Versioned & { organizationId: string; userId: string; role: Role; createdAt: string };

const ORGANIZATIONS_PER_USER_MAX = 1_000;

/** Organizations and who belongs to them. */
export class Organizations {
  readonly #control: ControlStore;
  readonly #now: () => number;

  constructor(control: ControlStore, options: { now?: () => number } = {}) {
    this.#control = control;
    this.#now = options.now ?? Date.now;
  }

  /**
   * Creates an organization that the user owns. Without a slug it gets one from its name.
   *
   * @throws {ApiError} `CONFLICT` when the slug is taken or the user is in 1,000 organizations; `NOT_FOUND` when
   * there is no such user.
   */
  async create(
    actor: Actor,
    userId: string,
    input: { name: string; slug?: string | undefined; description?: string | null | undefined },
  ): Promise<Organization> {
    const atMs = this.#now();
    const createdAt = new Date(atMs).toISOString();
    const organization: Organization = {
      id: createUuidV7(atMs),
      name: input.name,
      slug: input.slug ?? slugify(input.name),
      description: input.description ?? null,
      createdAt,
      updatedAt: createdAt,
    };
    const slug = indexKey('organization', 'slug', organization.slug);
    const isFree: Check = { op: 'absent', key: slug };
    const userExists: Check = { op: 'exists', key: documentKey('user', userId) };
    const hasRoom: Check = { op: 'below', key: ofUserKey(userId), limit: ORGANIZATIONS_PER_USER_MAX };
    const outcome = await this.#control.transact({
      atMs,
      checks: [userExists, isFree, hasRoom],
      writes: [
        {
          op: 'put',
          key: documentKey('organization', organization.id),
          document: { version: 1, ...organization },
        },
        { op: 'point', key: slug, value: organization.id },
        ...writeMember({ organizationId: organization.id, userId, role: 'owner', createdAt }),
      ],
      change: {
        actor,
        action: 'organization.create',
        target: { kind: 'organization', id: organization.id },
        after: { ...organization, ownerId: userId },
      },
    });
    if (outcome.committed) return organization;
    if (outcome.failed === userExists) throw new ApiError('NOT_FOUND', { public: 'there is no such user' });
    if (outcome.failed === hasRoom) {
      throw new ApiError('CONFLICT', {
        public: `expected a user of at most ${ORGANIZATIONS_PER_USER_MAX} organizations, got one more`,
      });
    }
    throw new ApiError('CONFLICT', {
      public: `the slug "${organization.slug}" is taken; choose another one`,
    });
  }

  /** The organizations that the user belongs to with the user's role, oldest first. */
  async listForUser(userId: string): Promise<(Organization & { role: Role })[]> {
    const ids = await this.#control.listChildren(ofUserKey(userId));
    const [organizations, members] = await Promise.all([
      this.#control.readMany<OrganizationDocument>('organization', ids),
      this.#control.readMany<MemberDocument>(
        'member',
        ids.map((id) => memberId(id, userId)),
      ),
    ]);
    return organizations.flatMap((organization, place) => {
      const member = members[place];
      if (organization === undefined || member === undefined) return [];
      return [{ ...viewOrganization(organization), role: member.role }];
    });
  }

  /** The organization, whoever asks. */
  async find(id: string): Promise<Organization | undefined> {
    const document = await this.#control.read<OrganizationDocument>('organization', id);
    return document && viewOrganization(document);
  }

  /** The user's role in the organization; undefined when not a member, or when there is no such organization. */
  async roleOf(organizationId: string, userId: string): Promise<Role | undefined> {
    const member = await this.#control.read<MemberDocument>('member', memberId(organizationId, userId));
    return member?.role;
  }
}

function memberId(organizationId: string, userId: string): string {
  return `${organizationId}/${userId}`;
}

function ofUserKey(userId: string): string {
  return childrenKey('organizations', 'user', userId);
}

function writeMember(member: Omit<MemberDocument, 'version'>): Write[] {
  const { organizationId, userId } = member;
  return [
    {
      op: 'put',
      key: documentKey('member', memberId(organizationId, userId)),
      document: { version: 1, ...member },
    },
    { op: 'add', key: childrenKey('members', 'organization', organizationId), member: userId },
    { op: 'add', key: ofUserKey(userId), member: organizationId },
  ];
}

function viewOrganization({ version: _version, ...organization }: OrganizationDocument): Organization {
  return organization;
}
