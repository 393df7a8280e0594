--[[
Shares: how many idle and creating sandboxes each host may hold, without a leader.

A host's heartbeat says what it holds and is answered with its share. What is owed to all is
max_idle plus one per live ticket plus one per client that waits at a host without a ticket, and
no more than max_total leaves beside what is leased. Each host's part is by capacity, largest
remainder, ties by name. Two numbers are kept per host:

    told    what it was told last: more than that it must give up
    share   what counts against the pool until the host's deadline; never less than told

A share grows only by what nobody else's covers. It shrinks only to what the host reports holding,
in the call after the one that told it: that call proves that it knows. So a new host starts with
what is free, and gets its part as the others report less.

Nobody is given more than before while the pool settles (35_meta).

Computing it reads all hosts, so it is done only when something changed that it depends on: the
meta's `version` (a host came, left, drained, got another share, another intent), this host's own
numbers, the live tickets, or the next host's deadline passed.

Invariant: the sum of the shares of live hosts grows only while it stays within what is owed.
]]
local shares = {}
prepare[#prepare + 1] = function()
	local call, key = pool.call, pool.key

	-- All hosts by name, with the part of their records that concerns others.
	local function all_hosts(p, name, me)
		local damaged = p.damaged
		local flat = call(p, 'HGETALL', key(p, 'hosts'))
		local hosts = {}
		for i = 1, #flat, 2 do
			local record = flat[i] == name and me or records.sharer(p, flat[i], flat[i + 1])
			if record then
				hosts[#hosts + 1] = {name = flat[i], record = record}
			end
		end
		-- What is damaged is another's, who will notice.
		p.damaged = damaged
		table.sort(hosts, function(a, b) return a.name < b.name end)
		return hosts
	end

	local function settles_until(p, since)
		local ends = since + meta.SETTLE_MS
		return pool.ahead(p, ends, meta.SETTLE_MS) and ends or 0
	end

	local function owed(p, m, hosts)
		if m.state ~= 'active' then
			return 0, 0
		end
		local demand, leased = 0, 0
		for _, host in ipairs(hosts) do
			if dispense.is_live(p, host.record) then
				demand = demand + host.record.waiters
				leased = leased + host.record.leased
			end
		end
		local base = m.max_idle + waiters.alive(p)
		local all = base + demand
		if m.max_total > 0 then
			all = math.min(all, math.max(0, m.max_total - leased))
		end
		return math.min(base, all), all
	end

	-- The part of `base` that is this host's, by largest remainder over those who may dispense.
	local function part(p, m, hosts, name, base)
		local weight, sharers = 0, {}
		for _, host in ipairs(hosts) do
			if dispense.may_dispense(p, m, host.record) then
				weight = weight + math.max(1, host.record.capacity)
				sharers[#sharers + 1] = host
			end
		end
		local rest, mine = base, nil
		for _, host in ipairs(sharers) do
			local quota = base * math.max(1, host.record.capacity)
			host.part = math.floor(quota / weight)
			host.remainder = quota % weight
			rest = rest - host.part
			if host.name == name then
				mine = host
			end
		end
		if not mine then
			return 0
		end
		table.sort(sharers, function(a, b)
			if a.remainder ~= b.remainder then
				return a.remainder > b.remainder
			end
			return a.name < b.name
		end)
		for i = 1, rest do
			sharers[i].part = sharers[i].part + 1
		end
		return mine.part
	end

	local function give(p, m, hosts, name, me, was_live)
		local others = 0
		for _, host in ipairs(hosts) do
			if host.name ~= name and dispense.is_live(p, host.record) then
				others = others + host.record.share
			end
		end
		local base, all = owed(p, m, hosts)
		local held = me.idle + me.creating
		local share = was_live and math.min(me.share, math.max(me.told, held)) or 0
		local want = 0
		if dispense.may_dispense(p, m, me) then
			want = part(p, m, hosts, name, base) + me.waiters
		end
		local known = math.max(held, me.told)
		if settles_until(p, m.settle) > 0 or
				(settles_until(p, m.born) > 0 and me.returned == 1) then
			want = math.min(want, known)
		end
		if want > share then
			share = math.max(share, math.min(want, all - others))
			me.told = share
		else
			me.told = want
		end
		me.share = share
	end

	-- What all hosts hold, how many live, and since when they are back from an absence of all.
	local function survey(p, m, hosts, name)
		local away = p.now - m.beat > meta.DEADLINE_MS
		m.total, m.live = 0, 0
		local recheck = p.now + meta.DEADLINE_MS
		for _, host in ipairs(hosts) do
			local record = host.record
			if dispense.is_live(p, record) then
				m.total = m.total + record.idle + record.creating + record.leased
				m.live = m.live + 1
				recheck = math.min(recheck, record.deadline)
			elseif away and host.name ~= name and record.told > 0 then
				m.settle = p.now
			end
		end
		for _, since in ipairs({m.settle, m.born}) do
			local ends = settles_until(p, since)
			recheck = ends > 0 and math.min(recheck, ends) or recheck
		end
		return recheck
	end

	local function holds(me)
		return me.idle + me.creating + me.leased
	end

	--[[ A heartbeat: `me` is the host's record with its new numbers, `before` has what they were.
	Sets its share and told, and the pool's total, live, beat. Returns the live tickets. ]]
	function shares.beat(p, m, name, me, before, was_live)
		local tickets = waiters.alive(p)
		local same = was_live and me.draining == before.draining and
			me.drain_asked == before.drain_asked and me.waiters == before.waiters and
			(m.max_total == 0 or me.leased == before.leased)
		if same and me.share == me.told and me.weighed == m.version and
				me.tickets == tickets and pool.ahead(p, me.recheck, meta.DEADLINE_MS) then
			m.total = math.max(0, m.total + holds(me) - holds(before))
		else
			local hosts = all_hosts(p, name, me)
			meta.count_hosts(p, m, #hosts)
			me.recheck = survey(p, m, hosts, name)
			if me.weighed == 0 then
				me.returned = me.idle + me.creating > 0 and 1 or 0
			end
			give(p, m, hosts, name, me, was_live)
			if not same or me.share ~= before.share or me.told ~= before.told then
				m.version = m.version + 1
			end
			me.weighed, me.tickets = m.version, tickets
		end
		meta.set(p, m, {beat = p.now, total = m.total, live = m.live, settle = m.settle,
			version = m.version, hosts = m.hosts})
		return tickets
	end
end
