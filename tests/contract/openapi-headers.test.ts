import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { expectError, expectJson, openContractApi } from './contract-fixture.ts';
import type { ContractApi, TestTenant } from './contract-fixture.ts';

type Parameter = { name: string; in: string; required?: boolean };
type Operation = {
  parameters?: Parameter[];
  responses: Record<string, { headers?: Record<string, unknown> }>;
};
type Document = { paths: Record<string, Record<string, Operation>> };

let api: ContractApi;
let tenant: TestTenant;
let document: Document;
beforeAll(async () => {
  api = await openContractApi();
  tenant = await api.createTenant('headers');
  document = await expectJson<Document>(await api.call('GET', '/openapi.json'));
});
afterAll(async () => api[Symbol.asyncDispose]());

function listHeaders(method: string, path: string): string[] {
  const operation = document.paths[`/api/v1${path}`]?.[method];
  const headers = operation?.parameters?.filter((parameter) => parameter.in === 'header') ?? [];
  expect(headers.filter(({ required }) => required === true)).toEqual([]);
  return headers.map(({ name }) => name);
}

describe('contract §1: the OpenAPI document', () => {
  it('lists the request headers that a route understands, and those that only some answers have', () => {
    expect(listHeaders('post', '/ingest')).toEqual(['Idempotency-Key', 'Prefer']);
    expect(listHeaders('get', '/logs/stream')).toEqual(['Last-Event-ID']);
    expect(listHeaders('get', '/logs')).toEqual([]);
    const receipt = document.paths['/api/v1/ingest']?.['post']?.responses['200'];
    expect(Object.keys(receipt?.headers ?? {})).toEqual(['Idempotency-Replayed']);
  });

  it('a header that does not fit what is listed is refused by its name', async () => {
    const { apiKey } = tenant;
    const json = [{ service: 'web', level: 'info', message: 'm' }];
    const headers = { 'Idempotency-Key': 'x'.repeat(256) };
    const answer = await api.call('POST', '/ingest', { key: apiKey, json, headers });
    const { error, details } = await expectError(answer, 400, 'VALIDATION_ERROR');
    expect(error).toBe('Idempotency-Key: expected 1 to 255 printable ASCII characters, got 256 characters');
    expect(details?.[0]?.path).toBe('Idempotency-Key');
    const asListed = { 'idempotency-key': 'x'.repeat(255), prefer: 'handling=lenient' };
    expect((await api.call('POST', '/ingest', { key: apiKey, json, headers: asListed })).status).toBe(200);
    const again = await api.call('POST', '/ingest', { key: apiKey, json, headers: asListed });
    expect(again.headers.get('Idempotency-Replayed')).toBe('true');
  });
});
