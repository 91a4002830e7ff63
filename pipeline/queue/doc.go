// Package queue puts draftmill's shards on a NATS JetStream work queue and takes them off again.
//
// A shard is known by its key "<job>/<run>/<mode>/<shard>", where the run names the job's specification and its output
// folder (pipeline.Run), and lies on the subject draftmill.shards.<job>.<run>.<mode>.<shard>. Jobs of one name that
// differ in either share nothing. A scope is what begins keys: "<job>" or "<job>/<run>". On the server live, all on file
// storage, on three servers of a cluster:
//
//	DRAFTMILL            stream   the work queue: a shard stays until it is acknowledged
//	DRAFTMILL_DEAD       stream   shards that no worker can do, with the reason
//	DRAFTMILL_PAYLOADS   objects  the bytes of shards larger than the server's message limit
//	DRAFTMILL_ATTEMPTS   keys     how often each queued shard was handed out
//	DRAFTMILL_EXHAUSTED  stream   the server's word on shards that it handed out too often
//	<job>=<run>          durable  a run's pull consumer, which all workers share; it holds AckWait and the priority
//
// # Invariants
//
// A key is queued at most once. The stream holds one message per subject and refuses a second (discard new, per
// subject), however much time lies between the two; Publish reports the refusal as fresh = false. The Nats-Msg-Id
// is made anew by every call of Publish and serves only its own retries: a publish whose answer was lost is not
// stored twice, and a shard that was done and is rightly published again is never swallowed by the server's
// duplicate window, because its id is another one.
//
// A delivery keeps itself alive while its worker advances. Progress is sent every third of AckWait, and each one is
// confirmed by the server: a publish into a dead connection's buffer does not count. A worker that did not call Advance
// for a whole AckWait sends none. When none was confirmed for a whole AckWait, Lost is closed, for somebody else may hold
// the shard by then.
//
// A shard is settled once, and the server confirms it. Delivery is at least once, never exactly once: whoever
// works on shards commits results so that the first writer wins, and acknowledges afterwards.
//
// The count of attempts is our own. The server's count lives in the consumer's state, which a kill -9 can set
// back, and it also counts deliveries that were only given back; a message's headers cannot change once stored.
// So the count is a key in a bucket, written before the shard is handed out, with the message's id beside it (a
// later publish of the same key starts at one), and removed when the shard is settled for good, or after a week.
//
// A server that does not answer is waited for. Connect waits as long as it was told; after that publishing, waiting for
// shards and settling them go on through an outage, which is said once, at WARN, as is its end. Every other question is
// asked again for half a minute; asked twice, because an answer was lost, it comes to the same. A server that answers
// without the streams has lost its store: they are made anew, that of the shards last, and Queued tells a submitter what
// is missing. A stream or disk that is full holds a publisher back.
//
// No secret is logged: addresses are shown without their user part.
//
// Runs share the workers. A worker takes from the runs of the highest priority that have work, and among these from one
// after the other, each for a turn: long enough to be worth opening its models. It asks a consumer for what that has now,
// and hears of news; what comes back from dead workers it finds by looking again, several times per AckWait.
//
// Submitters make things, workers use them. A worker needs no right to publish shards or to make streams and consumers,
// and waits where no submitter has been yet (configs/nats/roles.conf).
//
// A worker holds what it works on and no more: Next asks for one message, and asks again only when called again.
//
// A shard that the server has handed out a thousand times it hands out no more, and says so in an advisory. A stream
// keeps these, and any worker turns them into dead letters. The count of attempts is what usually sets a shard aside.
//
// # Sources
//
// JetStream's own documents: ADR-8 (key-value), ADR-13 (pull), ADR-15 (acknowledgements), ADR-20 (object store).
package queue
