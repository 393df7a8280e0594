--[[
The packed records: what a field of a hash holds, as msgpack values in a fixed order.

Only additions are made within v1, at the end, with a default, so that a newer library reads what
an older one wrote. Trusts nothing that is stored: a record with a wrong kind of value, a number
that is not whole or a word that is not known does not decode, is deleted and counts as damage.

Invariants: what `get` returns is complete and well typed; nothing in it can make a command fail.
]]
local records = {}
prepare[#prepare + 1] = function()
	local type, pcall = type, pcall
	local unpack_text, unpack_some, pack = cmsgpack.unpack, cmsgpack.unpack_limit, cmsgpack.pack

	local STATES = {idle = true, leased = true, killing = true}
	local ASKED = {[''] = true, grant = true, command = true, hint = true}

	--[[ Readers run under pcall: arithmetic on what is no number ends them. The sum of the
	fractions is 0 only if all are whole; NaN and infinity have none. They are written out, and
	make no table but the record, because they are most of the time that an acquire takes. ]]

	--[[ An idle sandbox that nothing is asked of is four values, a grant ten: what follows has its
	defaults. ]]
	local function read_sandbox(text)
		local host, state, expires, digest, lease, ends, asked, since, ttl, via, claimed, reason,
			wanted, told = unpack_text(text)
		if lease == nil then
			lease, ends, asked, since, ttl, via = '', 0, '', 0, 0, 0
		end
		if claimed == nil then
			claimed, reason, wanted, told = 0, '', 0, 0
		end
		if not STATES[state] or not ASKED[asked] or type(host) ~= 'string' or
				type(digest) ~= 'string' or type(lease) ~= 'string' or
				type(reason) ~= 'string' or expires % 1 + ends % 1 + claimed % 1 + since % 1 +
				ttl % 1 + wanted % 1 + told % 1 + via % 1 ~= 0 then
			return nil
		end
		return {
			host = host,
			state = state,
			expires = expires + 0, -- end of its idle life
			digest = digest,
			lease = lease,
			ends = ends + 0,       -- end of the lease: expected, then the supervisor's word
			asked = asked,         -- of the supervisor
			since = since + 0,     -- asked since
			ttl = ttl + 0,         -- of a grant
			via = via + 0,         -- 1: the lease came from here, not from a local acquire
			claimed = claimed + 0,
			reason = reason,       -- of a command or hint
			wanted = wanted + 0,   -- end that the holder wants, 0 = none
			told = told + 0,       -- how often the owner was told of that wish
		}
	end

	local function pack_sandbox(r)
		if r.claimed == 0 and r.reason == '' and r.wanted == 0 and r.told == 0 then
			if r.lease == '' and r.asked == '' and r.ends == 0 and r.ttl == 0 and r.via == 0 then
				return pack(r.host, r.state, r.expires, r.digest)
			end
			return pack(r.host, r.state, r.expires, r.digest, r.lease, r.ends, r.asked, r.since,
				r.ttl, r.via)
		end
		return pack(r.host, r.state, r.expires, r.digest, r.lease, r.ends, r.asked, r.since, r.ttl,
			r.via, r.claimed, r.reason, r.wanted, r.told)
	end

	-- What an acquire has to know of a host comes first.
	local function read_dispenser(text)
		local _, deadline, left, draining, drain_asked, spec_digest, endpoint =
			unpack_some(text, 6)
		if type(spec_digest) ~= 'string' or type(endpoint) ~= 'string' or
				deadline % 1 + left % 1 + draining % 1 + drain_asked % 1 ~= 0 then
			return nil
		end
		return {
			deadline = deadline + 0,       -- live until then
			left = left + 0,               -- it unregistered; its rest is being dropped
			draining = draining + 0,       -- the host's own word; 2: it leaves
			drain_asked = drain_asked + 0, -- the operator's: 0, 1, -1 = none to be repeated
			spec_digest = spec_digest,
			endpoint = endpoint,
		}
	end

	-- Then what the shares of others have to.
	local function read_sharer(text)
		local r = read_dispenser(text)
		local _, _, _, _, _, _, _, share, told, capacity, idle, creating, leased, waiting =
			unpack_some(text, 13)
		if share % 1 + told % 1 + capacity % 1 + idle % 1 + creating % 1 + leased % 1 +
				waiting % 1 ~= 0 then
			return nil
		end
		r.share = share + 0            -- counted against the pool until the deadline
		r.told = told + 0              -- what the host was told last; at most its share
		r.capacity = capacity + 0
		r.idle, r.creating, r.leased = idle + 0, creating + 0, leased + 0
		r.waiters = waiting + 0        -- its clients that wait without a ticket
		return r
	end

	local function read_host(text)
		local r, v = read_sharer(text), {unpack_text(text)}
		r.incarnation, r.seq, r.version, r.seen = v[14], v[15] + 0, v[16], v[17] + 0
		r.boot_id, r.secret_digest, r.spec_revision = v[18], v[19], v[20] + 0
		r.listing = v[21] + 0          -- number of its current listing (50_sandboxes)
		r.sweep = v[22] + 0            -- 1: entries of older listings are to be dropped,
		r.sweep_at = v[23] + 0         -- from then on
		r.past = v[24]                 -- its last incarnations, which are fenced
		r.weighed = v[25] + 0          -- version of the shares that its own came from,
		r.recheck = v[26] + 0          -- which holds until then
		r.tickets = v[27] + 0          -- and with so many live tickets
		r.returned = v[28] + 0         -- 1: it held something when it came
		for _, name in ipairs({'incarnation', 'version', 'boot_id', 'secret_digest', 'past'}) do
			if type(r[name]) ~= 'string' then
				return nil
			end
		end
		if r.seq % 1 + r.seen % 1 + r.spec_revision % 1 + r.listing % 1 + r.sweep % 1 +
				r.sweep_at % 1 + r.weighed % 1 + r.recheck % 1 + r.tickets % 1 +
				r.returned % 1 ~= 0 then
			return nil
		end
		return r
	end

	local function pack_host(r)
		return pack(r.deadline, r.left, r.draining, r.drain_asked, r.spec_digest, r.endpoint,
			r.share, r.told, r.capacity, r.idle, r.creating, r.leased, r.waiters, r.incarnation,
			r.seq, r.version, r.seen, r.boot_id, r.secret_digest, r.spec_revision, r.listing,
			r.sweep, r.sweep_at, r.past, r.weighed, r.recheck, r.tickets, r.returned)
	end

	local function read_lease(text)
		local sandbox, reason, policy, min, ttl, endpoint, host, at = unpack_text(text)
		if type(sandbox) ~= 'string' or type(reason) ~= 'string' or type(policy) ~= 'string' or
				type(endpoint) ~= 'string' or type(host) ~= 'string' or
				min % 1 + ttl % 1 + at % 1 ~= 0 then
			return nil
		end
		return {
			sandbox = sandbox,             -- '' = ended
			reason = reason,               -- of the end
			policy = policy,               -- '' = bound by the supervisor: anything matches
			min = min + 0,
			ttl = ttl + 0,
			endpoint = endpoint,
			host = host,
			at = at + 0,                   -- when that came about
		}
	end

	-- What lives takes more than the 64 bytes beyond which a hash is a table, not a list to walk.
	local function pack_lease(r)
		return pack(r.sandbox, r.reason, r.policy, r.min, r.ttl, r.endpoint, r.host, r.at)
	end

	local function read_wish(text)
		local policy, min, ttl, prefer, exclude = unpack_text(text)
		if type(policy) ~= 'string' or type(prefer) ~= 'string' or type(exclude) ~= 'string' or
				min % 1 + ttl % 1 ~= 0 then
			return nil
		end
		return {policy = policy, min = min + 0, ttl = ttl + 0, prefer = prefer, exclude = exclude}
	end

	local function pack_wish(r)
		return pack(r.policy, r.min, r.ttl, r.prefer, r.exclude)
	end

	local function store(key_name, read, write)
		local this = {pack = write}

		-- nil: there is none (any more). `part`: another reader of the same text.
		function this.decode(p, name, text, part)
			if not text then
				return nil
			end
			local ok, record = pcall(part or read, text)
			if ok and record then
				return record
			end
			p.damaged = true
			if not p.readonly then
				pool.call(p, 'HDEL', p.base .. key_name, name)
			end
			return nil
		end

		function this.get(p, name, part)
			return this.decode(p, name, pool.call(p, 'HGET', p.base .. key_name, name), part)
		end

		function this.put(p, name, record)
			pool.call(p, 'HSET', p.base .. key_name, name, write(record))
		end

		function this.drop(p, name)
			pool.call(p, 'HDEL', p.base .. key_name, name)
		end

		return this
	end

	records.sandbox = store('sb', read_sandbox, pack_sandbox)
	records.host = store('hosts', read_host, pack_host)
	records.lease = store('lease', read_lease, pack_lease)
	records.wish = store('waiters:wish', read_wish, pack_wish)

	function records.new_sandbox(host)
		return {host = host, state = 'idle', expires = 0, digest = '', lease = '', ends = 0,
			claimed = 0, asked = '', reason = '', since = 0, ttl = 0, wanted = 0, told = 0,
			via = 0}
	end

	function records.new_host()
		return {deadline = 0, left = 0, draining = 0, drain_asked = -1, spec_digest = '',
			endpoint = '', share = 0, told = 0, capacity = 1, idle = 0, creating = 0,
			leased = 0, waiters = 0, incarnation = '', seq = 0, version = '', seen = 0,
			boot_id = '', secret_digest = '', spec_revision = 0, listing = 0, sweep = 0,
			sweep_at = 0, past = '', weighed = 0, recheck = 0, tickets = 0,
			returned = 0}
	end

	function records.ended_lease(p, reason)
		return {sandbox = '', reason = reason, policy = '', min = 0, ttl = 0, endpoint = '',
			host = '', at = p.now}
	end

	-- Parts of a host's record, to look at only.
	function records.dispenser(p, host)
		return records.host.get(p, host, read_dispenser)
	end

	function records.sharer(p, host, text)
		return records.host.decode(p, host, text, read_sharer)
	end

	-- All hosts by name: {name, record}. What is damaged is for its owner to renew.
	function records.hosts(p)
		local damaged = p.damaged
		local flat = pool.call(p, 'HGETALL', pool.key(p, 'hosts')) or {}
		local hosts = {}
		for i = 1, #flat, 2 do
			local record = arguments.host(flat[i]) and
				records.host.decode(p, flat[i], flat[i + 1])
			if record then
				hosts[#hosts + 1] = {name = flat[i], record = record}
			end
		end
		p.damaged = damaged
		table.sort(hosts, function(a, b) return a.name < b.name end)
		return hosts
	end

	-- The answer to a host's last call: seq, function, reply. nil if there is none that fits.
	function records.answer(p, host, seq, fn)
		local text = pool.call(p, 'HGET', pool.key(p, 'answers'), host)
		local ok, answer = pcall(cmsgpack.unpack, text or '')
		if not ok or type(answer) ~= 'table' or answer[1] ~= seq or answer[2] ~= fn or
				type(answer[3]) ~= 'table' or type(answer[3][1]) ~= 'string' then
			return nil
		end
		for _, element in ipairs(answer[3]) do
			if type(element) ~= 'string' and type(element) ~= 'number' then
				return nil
			end
		end
		return answer[3]
	end

	function records.remember(p, host, seq, fn, reply)
		pool.call(p, 'HSET', pool.key(p, 'answers'), host, cmsgpack.pack({seq, fn, reply}))
	end
end
