import { dirname, join, relative } from 'node:path';
import { CHECKOUT_DIR } from './config.ts';
import type { Installation } from './first-start.ts';

type PageFacts = {
  url: string;
  installation: Installation;
  credentialsPath: string;
  logsPath: string;
  /** Where mails are written; undefined when they are sent. */
  mailsPath: string | undefined;
};

/**
 * The one page of a start. Secrets stand on it at the first start only; later ones read the key from the file,
 * so that the lines still work when pasted.
 */
export function renderWelcomePage(facts: PageFacts): string {
  const { url, installation, credentialsPath, logsPath, mailsPath } = facts;
  const shown = (path: string): string =>
    path.startsWith(`${CHECKOUT_DIR}/`) ? relative(CHECKOUT_DIR, path) : path;
  const lines = ['', `  Logpond is ready at ${url}`, ''];
  if (installation.kind === 'foreign') {
    lines.push('  These stores hold accounts already: sign in with one of them.');
  } else if (installation.kind === 'new') {
    const { email, password, apiKey, projectId } = installation.credentials;
    lines.push(`  E-mail       ${email}`, `  Password     ${password}`);
    lines.push(`  API key      ${apiKey}`, `  Project      ${projectId}`);
    lines.push(`  Kept in      ${shown(credentialsPath)} (shown here only this once)`);
  } else {
    lines.push(`  E-mail       ${installation.credentials.email}`);
    lines.push(`  Password and API key are in ${shown(credentialsPath)}`);
  }
  lines.push(`  Logs         ${shown(logsPath)}`);
  if (mailsPath !== undefined) lines.push(`  Mails        ${shown(mailsPath)} (until SMTP_URL is set)`);
  lines.push('');
  if (installation.kind !== 'foreign') lines.push(...renderTour(installation, credentialsPath), '');
  lines.push('  Ctrl-C stops everything.', '');
  return lines.join('\n');
}

function renderTour(
  installation: Exclude<Installation, { kind: 'foreign' }>,
  credentialsPath: string,
): string[] {
  const { baseUrl, apiKey } = installation.credentials;
  const isNew = installation.kind === 'new';
  const key = isNew ? apiKey : '$KEY';
  // Elsewhere than in the checkout's own data directory, the command line has to be told.
  const dataDir = dirname(credentialsPath);
  const prefix = dataDir === join(CHECKOUT_DIR, '.logpond') ? '' : `LOGPOND_DATA_DIR=${quoteShell(dataDir)} `;
  const body = '{"logs":[{"service":"demo","level":"info","message":"hello from curl"}]}';
  return [
    ...(isNew
      ? []
      : [
          '  The key, for the lines below:',
          `KEY=$(node -p 'require(${quoteJs(credentialsPath)}).apiKey')`,
          '',
        ]),
    '  Send an entry:',
    `curl -sw "\\n" -H "X-API-Key: ${key}" -H "Content-Type: application/json" -d '${body}' "${baseUrl}/ingest"`,
    '',
    '  Find it:',
    `curl -sw "\\n" -H "X-API-Key: ${key}" "${baseUrl}/logs?q=hello&limit=5"`,
    '',
    '  Follow what comes in:',
    `curl -sN -H "X-API-Key: ${key}" "${baseUrl}/logs/stream"`,
    '',
    '  The same from the command line, here in the checkout:',
    `${prefix}npx logpond send --service dpkg /var/log/dpkg.log`,
    `${prefix}npx logpond tail`,
  ];
}

function quoteShell(text: string): string {
  return /^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

function quoteJs(text: string): string {
  return JSON.stringify(text).replaceAll("'", String.raw`\u0027`);
}
