import { Session } from 'chdb';
import type { ChdbQueryStream, ChdbResult } from 'chdb';

/** What one statement runs with. Settings are applied in order, `readonly` always last. */
export type StatementContext = {
  queryId: string;
  database: string | undefined;
  settings: readonly (readonly [name: string, value: string])[];
};

const SETTING_NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

/**
 * The engine of one data directory, inside this process (one at most). Every statement runs in a session of
 * its own (0.14 ms), so settings never leak from one to the next; each running one holds a libuv thread.
 */
export class ClickHouseEngine implements Disposable {
  readonly version: string;
  readonly #path: string;
  readonly #connectionArgs: readonly string[];
  /** Keeps the engine alive between statements. */
  readonly #control: Session;

  constructor(path: string, configFile: string) {
    this.#path = path;
    this.#connectionArgs = [`--config-file=${configFile}`];
    this.#control = this.#open();
    this.version = this.#control.query('SELECT version()', 'TSVRaw').trim();
  }

  /** Runs one statement to its end and returns its whole output. */
  async run(sql: string, context: StatementContext, format: string): Promise<ChdbResult> {
    using session = this.#open();
    await prepare(session, context);
    return await session.queryAsync(tagOf(context.queryId) + sql, { format });
  }

  /**
   * Runs one SELECT in constant memory, block by block. Only for formats whose blocks may be concatenated:
   * of a document format (JSON) the engine makes one document per block.
   */
  async *stream(sql: string, context: StatementContext, format: string): AsyncGenerator<Uint8Array, void> {
    using session = this.#open();
    await prepare(session, context);
    const stream: ChdbQueryStream = session.queryStream(tagOf(context.queryId) + sql, { format });
    for await (const chunk of stream) yield chunk.raw();
  }

  /** Asks the engine to stop the statement of this id; returns at once, unknown ids are ignored. */
  async kill(queryId: string): Promise<void> {
    const pattern = tagOf(queryId).replaceAll('_', '\\_');
    using session = this.#open();
    await session.queryAsync(`KILL QUERY WHERE query LIKE ${quoteSql(`${pattern}%`)} ASYNC`);
  }

  #open(): Session {
    return new Session(this.#path, { connectionArgs: this.#connectionArgs });
  }

  [Symbol.dispose](): void {
    this.#control.close();
  }
}

async function prepare(session: Session, context: StatementContext): Promise<void> {
  const statements = context.settings
    .filter(([name]) => SETTING_NAME.test(name))
    // Nothing can be set after readonly.
    .toSorted(([a], [b]) => Number(a === 'readonly') - Number(b === 'readonly'))
    // Always quoted: the engine reads numbers from strings, while a token such as 42 must stay a string.
    .map(([name, value]) => `SET ${name}=${quoteSql(value)};`);
  if (context.database !== undefined) {
    statements.unshift(`USE \`${context.database.replaceAll('\\', '').replaceAll('`', '')}\`;`);
  }
  if (statements.length > 0) await session.queryAsync(statements.join(''));
}

/** The comment that starts a statement's text, by which KILL QUERY finds it: the engine takes no query id. */
function tagOf(queryId: string): string {
  return `/*${queryId.replaceAll(/[^\w-]/g, '_')}*/`;
}

/** A string literal of ClickHouse's SQL. */
export function quoteSql(text: string): string {
  return `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
}
