--[[
reap: what nobody else would ever take away, a bounded number per call.

    hosts that were not seen for an hour, with all that is theirs
    leases and tombstones whose time is over
    tickets of those who left
    leftovers of damage: records that no index names, answers and wishes of nobody

Any supervisor calls it now and then; calling it more often is harmless. The last kind is found by
a walk over the hashes, a step per call, whose place is kept in the meta.

Trusts only the indexes that it has just read.

Invariant: once all sandboxes are gone, all hosts left or forgotten and ten minutes passed,
nothing is left of a pool but its meta.
]]
prepare[#prepare + 1] = function()
	local HOST_FORGOTTEN_MS = 3600000
	local STEP = 64
	local call, key = pool.call, pool.key

	local function forget_hosts(p, budget)
		for _, host in ipairs(records.hosts(p)) do
			local record = host.record
			if budget.left > 0 and not dispense.is_live(p, record) and (record.left == 1 or
					record.seen < p.now - HOST_FORGOTTEN_MS) then
				local _, dropped = records.drop_host(p, host.name, record, budget.left,
					'host_lost')
				budget.left = budget.left - dropped - 1
			end
		end
	end

	local function forget_leases(p, budget)
		local ends = key(p, 'lease:ends')
		for _, lease in ipairs(call(p, 'ZRANGEBYSCORE', ends, '-inf', p.now, 'LIMIT', 0,
				math.max(0, budget.left))) do
			records.lease.drop(p, lease)
			call(p, 'ZREM', ends, lease)
			budget.left = budget.left - 1
		end
	end

	local function forget_tickets(p, budget)
		for _, lease in ipairs(call(p, 'ZRANGEBYSCORE', key(p, 'waiters:alive'), '-inf', p.now,
				'LIMIT', 0, math.max(0, budget.left))) do
			waiters.drop(p, lease)
			budget.left = budget.left - 1
		end
		-- Tickets that lost their liveness are at the head sooner or later.
		waiters.oldest(p, function() return false end)
	end

	-- Hosts of the round that are lost or have nothing: an acquire would do it, if one came.
	local function leave_round(p, budget)
		local round = key(p, 'hosts:idle')
		for _, host in ipairs(call(p, 'ZRANGE', round, 0, STEP - 1)) do
			if call(p, 'ZCARD', key(p, 'idle:', host)) == 0 or
					not call(p, 'HGET', key(p, 'hosts'), host) then
				call(p, 'ZREM', round, host)
				budget.left = budget.left - 1
			end
		end
	end

	-- ---- the walk ----

	local function index_lease(p, lease)
		call(p, 'ZADD', key(p, 'lease:ends'), 'NX', p.now + sandboxes.TOMBSTONE_MS, lease)
	end

	local function check_sandbox(p, id)
		local record = records.sandbox.get(p, id)
		if not record then
			return 0
		end
		if not call(p, 'HGET', key(p, 'hosts'), record.host) then
			sandboxes.end_lease(p, record.lease, id, 'host_lost')
			sandboxes.forget(p, id, record.host)
			return 1
		end
		-- Its owner tells what it is, or that it is gone.
		if not call(p, 'ZSCORE', key(p, 'own:', record.host), id) and record.asked == '' then
			sandboxes.hint(p, id, record, 'discarded')
		end
		return 0
	end

	local WALKS = {
		{hash = 'lease', visit = function(p, lease)
			if not records.lease.get(p, lease) then
				return 1
			end
			index_lease(p, lease)
			return 0
		end},
		{hash = 'sb', visit = check_sandbox},
		{hash = 'waiters:wish', visit = function(p, lease)
			if waiters.has(p, lease) then
				return 0
			end
			waiters.drop(p, lease)
			return 1
		end},
		{hash = 'answers', visit = function(p, host)
			if call(p, 'HGET', key(p, 'hosts'), host) then
				return 0
			end
			call(p, 'HDEL', key(p, 'answers'), host)
			return 1
		end},
	}

	local function walk(p, budget)
		for _, step in ipairs(WALKS) do
			local field = 'walk:' .. step.hash
			local cursor = call(p, 'HGET', p.meta_key, field)
			if not cursor or not string.find(cursor, '^%d+$') then
				cursor = '0'
			end
			local found = call(p, 'HSCAN', key(p, step.hash), cursor, 'COUNT', STEP)
			for i = 1, #found[2], 2 do
				budget.left = budget.left - step.visit(p, found[2][i])
			end
			if found[1] ~= cursor and call(p, 'EXISTS', p.meta_key) == 1 then
				call(p, 'HSET', p.meta_key, field, found[1])
			end
		end
	end

	pool.serve('reap', {
		fields = {{'limit', arguments.integer(1, 1000)}},
	}, function(p, v)
		local budget = {left = v.limit}
		forget_hosts(p, budget)
		forget_leases(p, budget)
		forget_tickets(p, budget)
		leave_round(p, budget)
		walk(p, budget)
		return {'OK', v.limit - budget.left}
	end)
end
