--[[
Sandboxes in the directory: what is listed as idle, what is leased to whom, what is asked of
owners.

    idle:<host>   what may be dispensed; score = end of its idle life
    own:<host>    all entries of a host; score = number of the listing that last named it
    todo:<host>   what its supervisor is to be told at its next heartbeat; details in the record
    sb            the records;   lease, lease:ends   who holds what, and tombstones

The supervisor is the authority: what it says replaces what is here, with one exception. A grant
or a command that it has not answered yet is younger than what it says about an idle sandbox, and
stays.

A *listing* is the host's whole list: a new incarnation or a resync starts one, and what it has
not named by its end is dropped, a bounded number per call.

Invariants: an entry is in idle:<host> only if its record is idle with nothing asked; a lease maps
to at most one sandbox; an ended lease keeps a tombstone for ten minutes; a tombstone `released`
is an order that outlives its record: whoever says that lease is alive is told to kill it.
]]
local sandboxes = {}
prepare[#prepare + 1] = function()
	sandboxes.TOMBSTONE_MS = 600000
	sandboxes.PER_HOST_MAX = 20000

	local call, key = pool.call, pool.key

	function sandboxes.tombstone(p, lease, reason)
		records.lease.put(p, lease, records.ended_lease(p, reason))
		call(p, 'ZADD', key(p, 'lease:ends'), p.now + sandboxes.TOMBSTONE_MS, lease)
	end

	-- The lease ends with this sandbox, unless it has moved on to another one.
	function sandboxes.end_lease(p, lease, id, reason)
		local record = lease ~= '' and records.lease.get(p, lease)
		if record and record.sandbox == id then
			sandboxes.tombstone(p, lease, reason)
		end
	end

	function sandboxes.unlist(p, id, record)
		call(p, 'ZREM', key(p, 'idle:', record.host), id)
	end

	-- Listed as idle. The host goes to the end of the round, unless it is in it.
	function sandboxes.list(p, id, record)
		call(p, 'ZADD', key(p, 'idle:', record.host), record.expires, id)
		call(p, 'ZADD', key(p, 'hosts:idle'), 'NX', p.now_us_text, record.host)
	end

	function sandboxes.ask(p, id, record, kind, reason)
		record.asked, record.reason, record.since = kind, reason, p.now
		call(p, 'ZADD', key(p, 'todo:', record.host), 'NX', p.now_text, id)
		pool.nudge(p, record.host)
	end

	local function answered(p, id, record)
		record.asked, record.reason, record.since = '', '', 0
		if record.wanted == 0 then
			call(p, 'ZREM', key(p, 'todo:', record.host), id)
		end
	end

	-- Out of idle, because somebody should look at it. The caller has its record.
	function sandboxes.hint(p, id, record, reason)
		sandboxes.unlist(p, id, record)
		sandboxes.ask(p, id, record, 'hint', reason)
		records.sandbox.put(p, id, record)
	end

	function sandboxes.forget(p, id, host)
		records.sandbox.drop(p, id)
		call(p, 'ZREM', key(p, 'idle:', host), id)
		call(p, 'ZREM', key(p, 'todo:', host), id)
		call(p, 'ZREM', key(p, 'own:', host), id)
	end

	--[[ Reserve an idle entry for a lease: the mapping is the grant. `wish` has policy, min, ttl. When
	to forget it is written down with its owner's word, or its end. ]]
	function sandboxes.grant(p, id, record, lease, wish, endpoint)
		local now = p.now
		record.state, record.lease, record.claimed, record.via = 'leased', lease, 0, 1
		record.ttl, record.wanted, record.told = wish.ttl, 0, 0
		record.ends = wish.ttl > 0 and now + wish.ttl or record.expires
		sandboxes.ask(p, id, record, 'grant', '')
		records.sandbox.put(p, id, record)
		records.lease.put(p, lease, {sandbox = id, reason = '', policy = wish.policy,
			min = wish.min, ttl = wish.ttl, endpoint = endpoint, host = record.host,
			at = now})
	end

	-- The holder gives it up, or somebody in its name.
	function sandboxes.order_end(p, id, lease, reason)
		local record = records.sandbox.get(p, id)
		if record and record.lease == lease and record.state == 'leased' then
			record.wanted = 0
			sandboxes.ask(p, id, record, 'command', reason)
			records.sandbox.put(p, id, record)
		end
	end

	-- ---- the supervisor's word ----

	local function say_idle(p, m, id, record)
		if record.asked == 'grant' or record.asked == 'command' then
			call(p, 'ZADD', key(p, 'todo:', record.host), 'NX', p.now_text, id)
			return false
		end
		sandboxes.end_lease(p, record.lease, id, 'lease_lost')
		record.state, record.lease, record.ends, record.claimed = 'idle', '', 0, 0
		record.wanted, record.via, record.ttl = 0, 0, 0
		answered(p, id, record)
		if record.digest ~= m.spec_digest or record.expires <= p.now then
			sandboxes.unlist(p, id, record)
			return false
		end
		sandboxes.list(p, id, record)
		return true
	end

	-- The lease's mapping follows the supervisor, unless the lease has another sandbox that
	-- somebody already uses: then this one dies unclaimed.
	local function map_lease(p, id, record, endpoint)
		local lease = records.lease.get(p, record.lease)
		if lease and lease.sandbox == '' and lease.reason == 'released' then
			sandboxes.ask(p, id, record, 'command', 'released')
			return
		end
		if lease and lease.sandbox ~= '' and lease.sandbox ~= id then
			local other = records.sandbox.get(p, lease.sandbox)
			if other and other.state == 'leased' and other.lease == record.lease and
					(other.claimed == 1 or record.claimed == 0) then
				return
			end
		end
		if not lease or lease.sandbox ~= id or lease.endpoint ~= endpoint then
			lease = lease or records.ended_lease(p, '')
			lease.sandbox, lease.endpoint, lease.reason = id, endpoint, ''
			lease.host = record.host
			records.lease.put(p, record.lease, lease)
		end
		call(p, 'ZADD', key(p, 'lease:ends'), record.ends + sandboxes.TOMBSTONE_MS, record.lease)
	end

	local function say_leased(p, id, record, said, endpoint)
		sandboxes.unlist(p, id, record)
		if record.lease ~= said.lease then
			sandboxes.end_lease(p, record.lease, id, 'lease_lost')
			record.via, record.ttl, record.wanted = 0, 0, 0
			if record.asked == 'command' then
				answered(p, id, record)
			end
		end
		record.state, record.lease = 'leased', said.lease
		record.ends, record.claimed = said.ends, said.claimed
		-- A second of tolerance: the owner counts from its own receipt and errs early.
		if record.wanted > 0 and record.ends >= record.wanted - 1000 then
			record.wanted, record.told = 0, 0
		end
		if record.asked == 'command' then
			-- Its end was ordered: the lease may be waiting for another one by now.
			call(p, 'ZADD', key(p, 'todo:', record.host), 'NX', p.now_text, id)
			return
		end
		answered(p, id, record)
		waiters.served(p, said.lease)
		map_lease(p, id, record, endpoint)
	end

	local function end_reason(p, record, said)
		if said.reason ~= '' then
			return said.reason
		end
		if record.asked == 'command' or record.asked == 'hint' then
			return record.reason
		end
		return record.ends > 0 and record.ends <= p.now and 'expired' or 'died'
	end

	local function say_ending(p, id, record, said)
		local reason = end_reason(p, record, said)
		sandboxes.unlist(p, id, record)
		sandboxes.end_lease(p, record.lease, id, reason)
		if said.state == 'gone' then
			sandboxes.forget(p, id, record.host)
			return
		end
		record.state, record.wanted = 'killing', 0
		answered(p, id, record)
	end

	--[[ One sandbox as its supervisor has it. said: id, state, lease, ends (idle: end of the idle
	life), claimed, digest, reason. Returns whether it was taken, and whether something became
	dispensable. ]]
	function sandboxes.say(p, m, host, host_record, said)
		local id = said.id
		local record = records.sandbox.get(p, id)
		if record and record.host ~= host then
			sandboxes.forget(p, id, record.host)
			record.host = host
		end
		local own = key(p, 'own:', host)
		if not record then
			if said.state == 'gone' then
				sandboxes.forget(p, id, host)
				return true, false
			end
			if call(p, 'ZCARD', own) >= sandboxes.PER_HOST_MAX and
					not call(p, 'ZSCORE', own, id) then
				return false, false
			end
			record = records.new_sandbox(host)
		end
		if said.state == 'gone' then
			say_ending(p, id, record, said)
			return true, false
		end
		local before = records.sandbox.pack(record)
		if tonumber(call(p, 'ZSCORE', own, id) or -1) ~= host_record.listing then
			call(p, 'ZADD', own, host_record.listing, id)
		end
		local listed = false
		if said.digest ~= '' then
			record.digest = said.digest
		end
		if said.state == 'idle' then
			record.expires = said.ends
			listed = say_idle(p, m, id, record)
		elseif said.state == 'leased' then
			say_leased(p, id, record, said, host_record.endpoint)
		else
			say_ending(p, id, record, said)
		end
		-- Most of what the rotation tells is known.
		local after = records.sandbox.pack(record)
		if after ~= before then
			call(p, 'HSET', key(p, 'sb'), id, after)
		end
		return true, listed
	end

	-- Drop entries that the host's current listing has not named. Returns whether all are gone.
	function sandboxes.sweep(p, host, below, limit, reason)
		local own = key(p, 'own:', host)
		local ids = call(p, 'ZRANGEBYSCORE', own, '-inf', '(' .. pool.digits(below),
			'LIMIT', 0, limit)
		for _, id in ipairs(ids) do
			local record = records.sandbox.get(p, id)
			if record and record.host == host then
				sandboxes.end_lease(p, record.lease, id, reason)
				sandboxes.forget(p, id, host)
			else
				call(p, 'ZREM', own, id)
			end
		end
		return #ids < limit, #ids
	end
end
