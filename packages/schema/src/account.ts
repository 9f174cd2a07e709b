import { z } from 'zod';
import { parseTimestampNs } from './timestamp.ts';

/** Roles in an organization, each with all the rights of those before it. */
export const ROLES = ['viewer', 'member', 'admin', 'owner'] as const;
export type Role = (typeof ROLES)[number];

/** What an API key may be used for. */
export const SCOPES = ['ingest', 'query', 'stream'] as const;
export type Scope = (typeof SCOPES)[number];

export const PASSWORD_LENGTH_MIN = 12;
export const PASSWORD_LENGTH_MAX = 128;
export const RETENTION_DAYS_DEFAULT = 30;
const RETENTION_DAYS_MAX = 3650;
const NAME_LENGTH_MAX = 100;
const EMAIL_LENGTH_MAX = 254;

const timeSchema = z.string().meta({ format: 'date-time' });
const nameSchema = z.string().trim().min(1).max(NAME_LENGTH_MAX);
const descriptionSchema = z.string().max(1000).nullish();
const slugSchema = z
  .string()
  .max(64)
  .regex(
    /^[a-z0-9]+(?:-[a-z0-9]+)*$/,
    'expected lower-case letters and digits with single hyphens between them',
  );
/** Counted in code points after NFC, as the password is hashed. */
const newPasswordSchema = z
  .string()
  .refine(
    (text) => {
      const length = Array.from(text.normalize('NFC')).length;
      return length >= PASSWORD_LENGTH_MIN && length <= PASSWORD_LENGTH_MAX;
    },
    { error: `expected a password of ${PASSWORD_LENGTH_MIN} to ${PASSWORD_LENGTH_MAX} characters` },
  )
  .meta({ minLength: PASSWORD_LENGTH_MIN, maxLength: PASSWORD_LENGTH_MAX });

export const userSchema = z
  .object({ id: z.uuid(), email: z.string(), name: z.string(), isAdmin: z.boolean() })
  .meta({ id: 'User' });

/** Body of POST /auth/login. The password is only bounded, so that old ones of any form can still log in. */
export const loginRequestSchema = z
  .strictObject({ email: z.string().min(1).max(EMAIL_LENGTH_MAX), password: z.string().min(1).max(1024) })
  .meta({ id: 'LoginRequest' });

/** Answer of login and register; `session` repeats the pair for dashboards that read it there. */
export const sessionAnswerSchema = z
  .object({
    token: z.string(),
    expiresAt: timeSchema,
    user: userSchema,
    session: z.object({ token: z.string(), expiresAt: timeSchema }),
  })
  .meta({ id: 'SessionAnswer' });

/** Body of POST /auth/register; the name defaults to what stands before the @. */
export const registerRequestSchema = z
  .strictObject({
    email: z.email().max(EMAIL_LENGTH_MAX),
    password: newPasswordSchema,
    name: nameSchema.optional(),
    setupToken: z.string().max(256).optional(),
  })
  .transform((body) => ({ ...body, name: body.name ?? body.email.slice(0, body.email.indexOf('@')) }))
  .meta({ id: 'RegisterRequest' });

export const organizationSchema = z
  .object({
    id: z.uuid(),
    name: z.string(),
    slug: z.string(),
    description: z.string().nullable(),
    role: z.enum(ROLES).nullable(),
    createdAt: timeSchema,
    updatedAt: timeSchema,
  })
  .meta({ id: 'Organization' });

export const organizationInputSchema = z
  .strictObject({ name: nameSchema, slug: slugSchema.optional(), description: descriptionSchema })
  .meta({ id: 'OrganizationInput' });

export const projectSchema = z
  .object({
    id: z.uuid(),
    organizationId: z.uuid(),
    name: z.string(),
    slug: z.string(),
    description: z.string().nullable(),
    retentionDays: z.int().min(1).max(RETENTION_DAYS_MAX),
    createdAt: timeSchema,
    updatedAt: timeSchema,
  })
  .meta({ id: 'Project' });

export const projectInputSchema = z
  .strictObject({
    organizationId: z.uuid(),
    name: nameSchema,
    slug: slugSchema.optional(),
    description: descriptionSchema,
    retentionDays: z.int().min(1).max(RETENTION_DAYS_MAX).default(RETENTION_DAYS_DEFAULT),
  })
  .meta({ id: 'ProjectInput' });

/** An API key in a list: never its secret; `prefix` is what a person may recognise it by. */
export const apiKeySchema = z
  .object({
    id: z.uuid(),
    name: z.string(),
    prefix: z.string(),
    scopes: z.array(z.enum(SCOPES)),
    expiresAt: timeSchema.nullable(),
    lastUsedAt: timeSchema.nullable(),
    createdAt: timeSchema,
  })
  .meta({ id: 'ApiKey' });

export const apiKeyInputSchema = z
  .strictObject({
    name: nameSchema,
    scopes: z
      .array(z.enum(SCOPES))
      .min(1)
      .max(SCOPES.length)
      .default([...SCOPES]),
    expiresAt: z
      .string()
      .refine((text) => parseTimestampNs(text) !== undefined, { error: 'expected an RFC 3339 time' })
      .nullish()
      .meta({ format: 'date-time' }),
  })
  .meta({ id: 'ApiKeyInput' });

/** The one answer that holds the secret. */
export const apiKeyCreatedSchema = z
  .object({
    id: z.uuid(),
    apiKey: z.string(),
    name: z.string(),
    scopes: z.array(z.enum(SCOPES)),
    expiresAt: timeSchema.nullable(),
    createdAt: timeSchema,
  })
  .meta({ id: 'ApiKeyCreated' });
