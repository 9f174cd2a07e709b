import { readFileSync } from 'node:fs';
import type { z } from 'zod';

/** Exit code of a process that refuses its configuration (EX_CONFIG of sysexits.h): restarting does not help. */
export const EXIT_CONFIG = 78;

/** All that is wrong with the environment, one line a setting. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
}

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Reads the settings that `schema` names from the environment; nothing else in the code reads it.
 *
 * An empty value counts as absent. For every setting `X`, `X_FILE` may name a file that holds the value
 * (trailing line ends are cut); giving both is an error.
 *
 * @throws {ConfigError} with every problem at once, each saying what was expected.
 */
export function readConfig<Shape extends z.ZodRawShape>(
  schema: z.ZodObject<Shape>,
  environment: Environment = process.env,
): z.infer<z.ZodObject<Shape>> {
  const problems: string[] = [];
  const given: Record<string, string> = {};
  for (const name of Object.keys(schema.shape)) {
    const value = readSetting(name, environment, problems);
    if (value !== undefined) given[name] = value;
  }
  const parsed = schema.safeParse(given);
  if (!parsed.success) {
    for (const issue of parsed.error.issues) {
      const name = issue.path.join('.');
      const got = given[name] === undefined ? 'it is not set' : `got ${describe(name, given[name])}`;
      // zod's own preamble and its idea of what came (NaN, say) help nobody; what came follows.
      const expected = issue.message.replace(/^[A-Z][a-z]+ [a-z]+: /, '').replace(/, received \w+$/, '');
      problems.push(`${name}: ${expected}; ${got}`);
    }
  }
  if (problems.length > 0 || !parsed.success) {
    throw new ConfigError(
      `the configuration cannot be used:\n${problems.map((line) => `  ${line}`).join('\n')}`,
    );
  }
  return parsed.data;
}

function readSetting(name: string, environment: Environment, problems: string[]): string | undefined {
  const value = environment[name] || undefined;
  const file = environment[`${name}_FILE`] || undefined;
  if (file === undefined || name.endsWith('_FILE')) return value;
  if (value !== undefined) {
    problems.push(`${name}: give either ${name} or ${name}_FILE, not both`);
    return undefined;
  }
  try {
    return readFileSync(file, 'utf8').replace(/[\r\n]+$/, '');
  } catch (error) {
    problems.push(
      `${name}_FILE: cannot read ${file}; ${error instanceof Error ? error.message : String(error)}`,
    );
    return undefined;
  }
}

const SECRET_NAME = /PASSWORD|SECRET|TOKEN/;

function describe(name: string, value: string): string {
  if (SECRET_NAME.test(name)) return 'a value that is kept secret';
  const shown = maskCredentials(value);
  return JSON.stringify(shown.length > 80 ? `${shown.slice(0, 80)}…` : shown);
}

/** A parameter of a URL such as `pass=` or `auth.pass=`. */
const SECRET_PARAMETER = /([?&][^=&]*(?:pass|secret|token|key)[^=&]*=)[^&]*/gi;

/** A password may hold an @ or a slash itself, in a URL that is therefore refused too: up to the last @. */
function maskCredentials(value: string): string {
  return value.replace(/(\/\/).*@/, '$1***@').replace(SECRET_PARAMETER, '$1***');
}

/** The effective settings as they may be logged: secrets and the credentials inside URLs are masked. */
export function maskConfig(config: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(config).map(([name, value]) => {
      if (value !== undefined && value !== '' && SECRET_NAME.test(name)) return [name, '***'];
      if (typeof value === 'string') return [name, maskCredentials(value)];
      return [name, value];
    }),
  );
}

/**
 * The environment for a child process: everything this process was given, and `settings` over it. What passes
 * through is not read here.
 */
export function inheritEnvironment(settings: Readonly<Record<string, string>>): Record<string, string> {
  const inherited = Object.entries(process.env).filter(
    (entry): entry is [string, string] => entry[1] !== undefined,
  );
  return { ...Object.fromEntries(inherited), ...settings };
}
