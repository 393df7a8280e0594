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

Invariant: the sum of the shares of live hosts grows only while it stays within what is owed.

Nobody is given more than before while the pool settles (35_meta).
]]
local shares = {}
prepare[#prepare + 1] = function()
	local function settling(p, since)
		return pool.ahead(p, since + meta.SETTLE_MS, meta.SETTLE_MS)
	end

	-- Nobody was heard of for a deadline, and others than this host held something before that.
	function shares.note_beat(p, m, hosts, name)
		local fields = {beat = p.now, total = 0}
		local away = p.now - m.beat > meta.DEADLINE_MS
		for _, host in ipairs(hosts) do
			local record = host.record
			if dispense.is_live(p, record) then
				fields.total = fields.total + record.idle + record.creating + record.leased
			elseif away and host.name ~= name and record.told > 0 then
				fields.settle = p.now
			end
		end
		meta.set(p, m, fields)
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

	--[[ Sets share and told of `name`, whose record among `hosts` has the new counts. was_live: its
	deadline had not passed before this call. ]]
	function shares.give(p, m, hosts, name, was_live)
		local me, others = nil, 0
		for _, host in ipairs(hosts) do
			if host.name == name then
				me = host.record
			elseif dispense.is_live(p, host.record) then
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
		if settling(p, m.settle) or (settling(p, m.born) and known > 0) then
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
end
