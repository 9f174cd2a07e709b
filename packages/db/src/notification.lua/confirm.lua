-- Changes nothing. The WAIT that is sent along says whether replicas hold what this connection wrote before.
-- KEYS: any key of the queue.
return 1
