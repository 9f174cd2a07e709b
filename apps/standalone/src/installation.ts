import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { z } from 'zod';
import { writeAtomically } from './data-dir.ts';
import type { DataDir } from './data-dir.ts';

const secretsSchema = z.object({
  redisPassword: z.string().default(createPassword),
  clickhousePassword: z.string().default(createPassword),
  /** Seals what users entrust to rules, as SECRET_KEYS takes it. */
  secretKeys: z.string().default(() => `first:${randomBytes(32).toString('base64')}`),
});

export type Secrets = z.infer<typeof secretsSchema>;

/**
 * The passwords of the embedded stores and the key of the secrets in them: `<data dir>/secrets.json`, mode 0600. What
 * is missing there is made.
 */
export function readSecrets(dataDir: DataDir): Secrets {
  const file = dataDir.resolve('secrets.json');
  const text = existsSync(file) ? readFileSync(file, 'utf8') : '{}';
  const secrets = secretsSchema.parse(JSON.parse(text));
  const complete = `${JSON.stringify(secrets, null, 2)}\n`;
  if (complete !== text) writeAtomically(file, complete);
  return secrets;
}

const credentialsSchema = z.object({
  baseUrl: z.string(),
  email: z.string(),
  password: z.string(),
  organizationId: z.string(),
  projectId: z.string(),
  apiKey: z.string(),
});

/** What `<data dir>/credentials.json` holds (contract.md §2); `baseUrl` ends in /api/v1. */
export type Credentials = z.infer<typeof credentialsSchema>;

const draftSchema = credentialsSchema.pick({ email: true, password: true });

/** The credentials file and, while the first start is not through, its draft. */
export class CredentialsFile {
  readonly path: string;
  readonly #draftPath: string;

  constructor(dataDir: DataDir) {
    this.path = dataDir.resolve('credentials.json');
    this.#draftPath = dataDir.resolve('credentials.draft.json');
  }

  /** Undefined before the first start is through. */
  read(): Credentials | undefined {
    return existsSync(this.path)
      ? credentialsSchema.parse(JSON.parse(readFileSync(this.path, 'utf8')))
      : undefined;
  }

  /**
   * The administrator's login, on disk before the account exists: a first start that was killed half-way is
   * completed by the next one.
   */
  readDraft(): z.infer<typeof draftSchema> {
    if (existsSync(this.#draftPath))
      return draftSchema.parse(JSON.parse(readFileSync(this.#draftPath, 'utf8')));
    const draft = { email: 'admin@localhost.localdomain', password: createPassword() };
    writeAtomically(this.#draftPath, `${JSON.stringify(draft, null, 2)}\n`);
    return draft;
  }

  write(credentials: Credentials): void {
    writeAtomically(this.path, `${JSON.stringify(credentials, null, 2)}\n`);
    rmSync(this.#draftPath, { force: true });
  }

  /** Puts aside credentials of stores that are not there any more. */
  setAside(): void {
    renameSync(this.path, `${this.path}.old`);
  }
}

function createPassword(): string {
  return randomBytes(24).toString('base64url');
}
