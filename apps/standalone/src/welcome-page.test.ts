import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { CHECKOUT_DIR } from './config.ts';
import { renderWelcomePage } from './welcome-page.ts';

const credentials = {
  baseUrl: 'http://127.0.0.1:8080/api/v1',
  email: 'admin@localhost.localdomain',
  password: 'a-secret-password',
  organizationId: 'o',
  projectId: 'the-project',
  apiKey: 'lp_key',
};
const facts = {
  url: 'http://127.0.0.1:8080',
  credentialsPath: "/data/it's here/credentials.json",
  logsPath: '/data/logs',
  mailsPath: '/data/outbox',
};

describe('renderWelcomePage', () => {
  it('the first start shows address, login, key and project, and lines for ingest, search and tail', () => {
    const page = renderWelcomePage({ ...facts, installation: { kind: 'new', credentials } });
    for (const part of [facts.url, credentials.email, credentials.password, 'lp_key', 'the-project']) {
      expect(page).toContain(part);
    }
    expect(page).toMatch(/^curl .*\/ingest"$/m);
    expect(page).toMatch(/^curl .*\/logs\?q=hello&limit=5"$/m);
    expect(page).toMatch(/^curl .*\/logs\/stream"$/m);
    const home = `LOGPOND_DATA_DIR='/data/it'\\''s here'`;
    expect(page).toContain(`\n${home} npx logpond tail\n`);
    expect(page).toContain(`\n${home} npx logpond send `);
  });

  it('in the checkout’s own data directory the command lines need no variable', () => {
    const credentialsPath = join(CHECKOUT_DIR, '.logpond/credentials.json');
    const page = renderWelcomePage({ ...facts, credentialsPath, installation: { kind: 'new', credentials } });
    expect(page).toMatch(/^npx logpond send/m);
    expect(page).toMatch(/^npx logpond tail$/m);
  });

  it('a later start shows no secret, and its lines read the key from the file', () => {
    const page = renderWelcomePage({ ...facts, installation: { kind: 'known', credentials } });
    expect(page).not.toContain(credentials.password);
    expect(page).not.toContain('lp_key');
    expect(page).toContain(facts.credentialsPath);
    expect(page).toContain(
      String.raw`KEY=$(node -p 'require("/data/it\u0027s here/credentials.json").apiKey')`,
    );
    expect(page).toContain('X-API-Key: $KEY');
  });

  it('says where mails are written, as long as they are', () => {
    const installation = { kind: 'known', credentials } as const;
    expect(renderWelcomePage({ ...facts, installation })).toMatch(/Mails +\/data\/outbox/);
    expect(renderWelcomePage({ ...facts, mailsPath: undefined, installation })).not.toContain('Mails');
  });

  it('stores with accounts of their own are said to be so', () => {
    const page = renderWelcomePage({ ...facts, installation: { kind: 'foreign' } });
    expect(page).toContain('sign in with one of them');
    expect(page).not.toContain('curl');
  });
});
