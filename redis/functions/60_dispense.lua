--[[
Handing out: which idle entry goes to whom.

The preferred host first, then the hosts that have something listed, least recently served first;
of a host the entry that ends soonest with more than the minimum remaining. The work does not
depend on how many entries or hosts there are: both are sorted sets, and what is found unfit is
taken out of them while passing (dead or draining hosts, forged or outdated entries, those about
to expire), at most a bounded number per call.

Trusts neither set: the host's record says whether it lives, the entry's record whether it is
idle.

Invariants: nothing with remaining <= minimum is handed out; nothing of a dead, draining or
outdated host; a live ticket is never overtaken by somebody who came later and could have taken
what it takes.
]]
local dispense = {}
prepare[#prepare + 1] = function()
	local ENTRIES_PER_CALL = 64
	local HOSTS_AT_ONCE = 8
	local HOSTS_PER_CALL = 256
	local SERVE_PER_CALL = 16
	local FORGED_PER_END = 64

	local call, key = pool.call, pool.key

	function dispense.is_draining(record)
		if record.draining == 2 then
			return true
		elseif record.drain_asked >= 0 then
			return record.drain_asked == 1
		end
		return record.draining == 1
	end

	function dispense.is_live(p, record)
		return record.left == 0 and pool.ahead(p, record.deadline, meta.DEADLINE_MS)
	end

	function dispense.may_dispense(p, m, record)
		return dispense.is_live(p, record) and not dispense.is_draining(record) and
			record.spec_digest == m.spec_digest
	end

	-- Is it what the sorted set says? One of an old spec goes to its owner to decide.
	local function is_good(p, m, host, id, record)
		if not record or record.host ~= host or record.state ~= 'idle' or record.asked ~= '' then
			return false
		elseif record.digest ~= m.spec_digest then
			sandboxes.hint(p, id, record, 'spec_changed')
			return false
		end
		return true
	end

	-- The first one that ends after `cut`, where those before it are to stay.
	local function take_beyond(p, m, host, idle, cut)
		while p.entries < ENTRIES_PER_CALL do
			local id = call(p, 'ZRANGEBYSCORE', idle, '(' .. pool.digits(cut), '+inf',
				'LIMIT', 0, 1)[1]
			if not id then
				return nil
			end
			p.entries = p.entries + 1
			call(p, 'ZREM', idle, id)
			local record = records.sandbox.get(p, id)
			if is_good(p, m, host, id, record) and record.expires > cut then
				return id, record
			end
		end
		return nil
	end

	--[[ The entry of this host that fits: id, its record. Popped first and looked at then, since the
	first one nearly always fits. Those that nobody may have any more are its owner's to end. ]]
	local function take_from(p, m, host, wish)
		local idle = key(p, 'idle:', host)
		local least = wish.min < 0 and m.min_ttl_ms or wish.min
		local cut = p.now + least
		while p.entries < ENTRIES_PER_CALL do
			local id = call(p, 'ZPOPMIN', idle)[1]
			if not id then
				return nil
			end
			p.entries = p.entries + 1
			local record = records.sandbox.get(p, id)
			if is_good(p, m, host, id, record) then
				if record.expires > cut then
					return id, record
				elseif record.expires > p.now + m.min_ttl_ms then
					call(p, 'ZADD', idle, record.expires, id)
					return take_beyond(p, m, host, idle, cut)
				end
				sandboxes.hint(p, id, record,
					record.expires <= p.now and 'expired' or 'near_expiry')
			end
		end
		return nil
	end

	-- Tries one host, which then is the last of the round. One that has nothing left leaves it.
	local function try_host(p, m, host, wish)
		local record = records.dispenser(p, host)
		local round = key(p, 'hosts:idle')
		if not record or not dispense.may_dispense(p, m, record) then
			p.left_round = p.left_round + call(p, 'ZREM', round, host)
			return nil
		end
		local id, entry = take_from(p, m, host, wish)
		if id then
			call(p, 'ZADD', round, p.now_us_text, host)
		elseif call(p, 'ZCARD', key(p, 'idle:', host)) == 0 then
			p.left_round = p.left_round + call(p, 'ZREM', round, host)
		end
		return id, entry, record
	end

	--[[ An entry for this wish, out of idle: id, its record, its host's. Nil if there is none, or none
	within the budget of this call. ]]
	function dispense.pick(p, m, wish, exclude)
		p.entries, p.hosts, p.left_round = p.entries or 0, p.hosts or 0, 0
		local prefer = wish.prefer
		if prefer ~= '' and not exclude[prefer] then
			local id, entry, host = try_host(p, m, prefer, wish)
			if id then
				return id, entry, host
			end
			p.left_round = 0
		end
		local first, count = 0, 1
		while true do
			local hosts = call(p, 'ZRANGE', key(p, 'hosts:idle'), tostring(first),
				tostring(first + count - 1))
			for _, host in ipairs(hosts) do
				if p.hosts == HOSTS_PER_CALL or p.entries == ENTRIES_PER_CALL then
					return nil
				end
				if not exclude[host] and host ~= prefer then
					p.hosts = p.hosts + 1
					local id, entry, record = try_host(p, m, host, wish)
					if id then
						return id, entry, record
					end
				end
			end
			if #hosts < count then
				return nil
			end
			first, p.left_round = first + count - p.left_round, 0
			count = HOSTS_AT_ONCE
		end
	end

	-- Whoever listed what this host does not have must not cost it a part of its share.
	function dispense.drop_forged(p, host)
		local idle = key(p, 'idle:', host)
		for _, range in ipairs({{0, FORGED_PER_END - 1}, {-FORGED_PER_END, -1}}) do
			for _, id in ipairs(call(p, 'ZRANGE', idle, range[1], range[2])) do
				local record = records.sandbox.get(p, id)
				if not record or record.host ~= host or record.state ~= 'idle' then
					call(p, 'ZREM', idle, id)
				end
			end
		end
	end

	function dispense.set_of(csv)
		local set = {}
		for host in string.gmatch(csv, '[^,]+') do
			set[host] = true
		end
		return set
	end

	-- What became dispensable goes to those who wait.
	function dispense.serve(p, m)
		if m.state ~= 'active' or not waiters.any(p) or
				call(p, 'ZCARD', key(p, 'hosts:idle')) == 0 then
			return
		end
		for _ = 1, SERVE_PER_CALL do
			local id, entry, host
			local lease, wish = waiters.oldest(p, function(wish)
				id, entry, host = dispense.pick(p, m, wish, dispense.set_of(wish.exclude))
				return id ~= nil
			end)
			if not lease then
				break
			end
			sandboxes.grant(p, id, entry, lease, wish, host.endpoint)
			waiters.served(p, lease)
		end
		p.entries, p.hosts = 0, 0
	end

	-- A sandbox that became ready, for the oldest live ticket that it fits. Returns lease, ttl.
	function dispense.give(p, m, id, entry, endpoint)
		local lease, wish = waiters.oldest(p, function(wish)
			local least = wish.min < 0 and m.min_ttl_ms or wish.min
			return entry.expires > p.now + least and
				not dispense.set_of(wish.exclude)[entry.host]
		end)
		if not lease then
			return nil
		end
		sandboxes.grant(p, id, entry, lease, wish, endpoint)
		waiters.served(p, lease)
		return lease, wish.ttl
	end
end
