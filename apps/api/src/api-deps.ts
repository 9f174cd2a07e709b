import type { AlertHistory } from '@logpond/db/alert-history';
import type { AlertQueries } from '@logpond/db/alert-queries';
import type { AlertRules } from '@logpond/db/alert-rules';
import type { RuleState } from '@logpond/db/alert-windows';
import type { ClickHouseStore } from '@logpond/db/clickhouse';
import type { DeadLetters } from '@logpond/db/dead-letters';
import type { LogStore } from '@logpond/db/log-store';
import type { LogStream } from '@logpond/db/log-stream';
import type { NotificationQueue } from '@logpond/db/notification-queue';
import type { Log } from '@logpond/runtime/log';
import type { AuthStores } from './auth.ts';
import type { BodyMemory } from './body-memory.ts';
import type { ApiConfig } from './config.ts';
import type { IngestFlush } from './ingest-flush.ts';
import type { Readiness } from './readiness.ts';
import type { SetupGate } from './setup-gate.ts';
import type { StreamRegistry } from './stream-registry.ts';
import type { TailHub } from './tail-hub.ts';

/** Everything that the routes work with; `openApi` builds it. */
export type ApiDeps = AuthStores & {
  alertRules: AlertRules;
  alertHistory: AlertHistory;
  alertQueries: AlertQueries;
  /** Whether rules of a project fire. @throws {StoreError} `unavailable`. */
  ruleStates: (projectId: string, ruleIds: readonly string[]) => Promise<Map<string, RuleState>>;
  notifications: Pick<NotificationQueue, 'sendTest'>;
  clickhouse: ClickHouseStore;
  logStore: LogStore;
  stream: LogStream;
  deadLetters: DeadLetters;
  flush: IngestFlush;
  hub: TailHub;
  streams: StreamRegistry;
  readiness: Readiness;
  setup: SetupGate;
  bodies: BodyMemory;
  config: Pick<ApiConfig, 'BASE_PATH' | 'SIGNUP' | 'PUBLIC_URL' | 'INGEST_BATCH_MAX' | 'MAX_BODY_BYTES'>;
  log: Log;
};
