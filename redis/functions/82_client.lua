--[[
What clients call: acquire, wait, cancel, renew, release.

A lease id names one request for ever: asking again gives the same answer (the sandbox while it
lives, LEASE_ENDED for ten minutes after), so a client whose reply was lost just asks again.
Asking again with that sandbox in `reject` says that it could not be used: it is given up for
another one.

Trusts clients with the directory, not with sandboxes: what they may do here is reserve, ask for
longer and ask for the end; the owner binds, extends and ends.

Invariants: a lease id with other parameters is LEASE_MISMATCH and changes nothing; a rejected id
that somebody else holds is left alone; a cancelled lease id is used up.
]]
prepare[#prepare + 1] = function()
	local call, key = pool.call, pool.key
	local TTL_MAX_MS = 366 * 86400000
	local LIST_MAX = 32

	local CREATES = {create = true, retry_next_then_create = true}
	local QUEUES = {wait = true, create = true, retry_next_then_create = true}

	local function held(p, lease)
		local record = records.sandbox.get(p, lease.sandbox)
		return record and {'OK', lease.sandbox, record.host, lease.endpoint, record.ends,
			math.max(0, record.ends - p.now), p.now}
	end

	-- The answer for a lease that was served before; nil: it was not.
	local function repeated(p, lease_id, lease)
		if not lease then
			return nil
		end
		local reply = lease.sandbox ~= '' and held(p, lease)
		if reply then
			return reply
		end
		if lease.sandbox ~= '' then
			lease.reason = 'lease_lost'
			sandboxes.tombstone(p, lease_id, lease.reason)
		end
		return {'LEASE_ENDED', lease.reason}
	end

	local function differs(known, v)
		return known.policy ~= '' and (known.policy ~= v.policy or known.min ~= v.min_ttl_ms or
			known.ttl ~= v.ttl_ms)
	end

	-- Returns whether the lease gave its sandbox up.
	local function reject(p, v, lease)
		local gave_up = false
		for _, id in ipairs(v.reject) do
			local record = records.sandbox.get(p, id)
			if lease and lease.sandbox == id then
				sandboxes.order_end(p, id, v.lease, 'discarded')
				records.lease.drop(p, v.lease)
				call(p, 'ZREM', key(p, 'lease:ends'), v.lease)
				gave_up = true
			elseif record and record.state == 'idle' and record.asked == '' then
				sandboxes.hint(p, id, record, 'discarded')
			end
		end
		return gave_up
	end

	local function not_open(m)
		if not m or m.state == 'draining' then
			return {'NOT_RUNNING'}
		elseif m.state ~= 'active' then
			return {'DESTROYED'}
		end
		return nil
	end

	local function queue_or_not(p, v, wish)
		if not QUEUES[v.policy] then
			return {'EMPTY'}
		end
		local m = meta.load(p)
		if not m then
			return {'NOT_RUNNING'}
		end
		if CREATES[v.policy] and m.max_total > 0 and m.total >= m.max_total then
			return {'SATURATED', 'max_total'}
		end
		local position = waiters.enqueue(p, m, v.lease, wish)
		if not position then
			return {'SATURATED', 'waiters'}
		end
		return {'WAIT', position}
	end

	pool.serve('acquire', {
		fields = {
			{'lease', arguments.lease},
			{'policy', arguments.word('fail_fast', 'wait', 'create', 'retry_next',
				'retry_next_then_create')},
			{'min_ttl_ms', arguments.integer(-1, TTL_MAX_MS)},
			{'ttl_ms', arguments.integer(0, TTL_MAX_MS)},
			{'prefer_host', arguments.optional(arguments.host)},
			{'reject', arguments.list(arguments.sandbox, LIST_MAX)},
			{'exclude_hosts', arguments.list(arguments.host, LIST_MAX)},
		},
	}, function(p, v)
		local lease = records.lease.get(p, v.lease)
		if lease and lease.sandbox ~= '' and differs(lease, v) then
			return {'LEASE_MISMATCH'}
		end
		if #v.reject > 0 and reject(p, v, lease) then
			lease = nil
		end
		local reply = repeated(p, v.lease, lease)
		if reply then
			return reply
		end
		local m = meta.brief(p)
		reply = not_open(m)
		if reply then
			return reply
		end

		local wish = {policy = v.policy, min = v.min_ttl_ms, ttl = v.ttl_ms,
			prefer = v.prefer_host, exclude = table.concat(v.exclude_hosts, ',')}
		if m.waiting and waiters.any(p) then
			if waiters.has(p, v.lease) then
				local known = records.wish.get(p, v.lease)
				if known and differs(known, v) then
					return {'LEASE_MISMATCH'}
				end
				records.wish.put(p, v.lease, wish)
				waiters.refresh(p, v.lease)
			end
			dispense.serve(p, m)
			reply = repeated(p, v.lease, records.lease.get(p, v.lease))
			if reply then
				return reply
			end
			if waiters.has(p, v.lease) then
				return {'WAIT', waiters.position(p, v.lease)}
			end
		end

		local excluded = {}
		for _, host in ipairs(v.exclude_hosts) do
			excluded[host] = true
		end
		local id, record, host = dispense.pick(p, m, wish, excluded)
		if not id then
			return queue_or_not(p, v, wish)
		end
		sandboxes.grant(p, id, record, v.lease, wish, host.endpoint)
		return {'OK', id, record.host, host.endpoint, record.ends, record.ends - p.now, p.now}
	end)

	pool.serve('wait', {
		fields = {{'lease', arguments.lease}, {'deadline_ms', arguments.time}},
	}, function(p, v)
		local reply = repeated(p, v.lease, records.lease.get(p, v.lease))
		if reply then
			return reply
		end
		local queued = waiters.has(p, v.lease)
		if p.now >= v.deadline_ms then
			waiters.drop(p, v.lease)
			return {'TIMEOUT'}
		end
		local m = meta.load(p)
		reply = not_open(m)
		if reply then
			waiters.drop(p, v.lease)
			return reply
		end
		if not queued then
			return {'NOT_FOUND'}
		end
		waiters.refresh(p, v.lease)
		dispense.serve(p, m)
		return repeated(p, v.lease, records.lease.get(p, v.lease)) or
			{'WAIT', waiters.position(p, v.lease)}
	end)

	-- What was reserved for it but not used ends too; what it uses is its own to release.
	pool.serve('cancel', {
		fields = {{'lease', arguments.lease}},
	}, function(p, v)
		waiters.drop(p, v.lease)
		local lease = records.lease.get(p, v.lease)
		if not lease then
			sandboxes.tombstone(p, v.lease, 'cancelled')
		elseif lease.sandbox ~= '' then
			local record = records.sandbox.get(p, lease.sandbox)
			if record and record.via == 1 and record.claimed == 0 then
				sandboxes.order_end(p, lease.sandbox, v.lease, 'discarded')
				sandboxes.tombstone(p, v.lease, 'cancelled')
			end
		end
		return {'OK'}
	end)

	pool.serve('renew', {
		fields = {{'lease', arguments.lease}, {'ttl_ms', arguments.integer(1, TTL_MAX_MS)}},
	}, function(p, v)
		local lease = records.lease.get(p, v.lease)
		if not lease then
			return {'NOT_FOUND'}
		end
		local record = lease.sandbox ~= '' and records.sandbox.get(p, lease.sandbox)
		if not record then
			return {'LEASE_ENDED', lease.sandbox ~= '' and 'lease_lost' or lease.reason}
		end
		local wanted = math.max(p.now + v.ttl_ms, record.ends, record.wanted)
		if wanted > record.ends then
			if wanted > record.wanted then
				record.wanted, record.told = wanted, 0
				records.sandbox.put(p, lease.sandbox, record)
			end
			call(p, 'ZADD', key(p, 'todo:', record.host), 'NX', p.now, lease.sandbox)
			pool.nudge(p, record.host)
		end
		return {'OK', wanted, record.ends, p.now}
	end)

	pool.serve('release', {
		fields = {{'lease', arguments.lease}},
	}, function(p, v)
		local lease = records.lease.get(p, v.lease)
		if lease then
			if lease.sandbox ~= '' then
				sandboxes.order_end(p, lease.sandbox, v.lease, 'released')
			end
			if lease.reason ~= 'released' then
				sandboxes.tombstone(p, v.lease, 'released')
			end
			return {'OK'}
		end
		if waiters.has(p, v.lease) then
			waiters.drop(p, v.lease)
			return {'OK'}
		end
		return {'NOT_FOUND'}
	end)
end
