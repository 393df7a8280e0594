--[[
What operators call: stats, resize, set_state, drain_host, info.

Their intent is the meta and its revision, which rises by one with every change; a change can
demand the revision that it was made against. Hosts learn it at their next heartbeat, to which
they are nudged.

Trusts whoever may call it; that is the business of the server's ACL.

Invariants: what destroys a pool is final (destroying may only become destroyed); max_idle 0 is a
real value; reading writes nothing, not even to clean up, so that it works on a replica.
]]
prepare[#prepare + 1] = function()
	local BUILD = 2
	local call, key = pool.call, pool.key
	local MAX = 1000000

	local function change(p, expected, fields)
		local m = meta.load(p)
		if not m then
			return {'NOT_FOUND'}
		elseif m.state == 'destroyed' or (m.state == 'destroying' and
				fields.state ~= 'destroying' and fields.state ~= 'destroyed') then
			return {'DESTROYED'}
		elseif expected ~= 0 and expected ~= m.revision then
			return {'STALE', m.revision}
		end
		fields.revision, fields.version = m.revision + 1, m.version + 1
		meta.set(p, m, fields)
		pool.nudge_all(p)
		return {'OK', m.revision}
	end

	pool.serve('resize', {
		fields = {
			{'max_idle', arguments.integer(-1, MAX)},
			{'max_total', arguments.integer(-1, MAX)},
			{'expected_revision', arguments.revision},
		},
	}, function(p, v)
		return change(p, v.expected_revision, {
			max_idle = v.max_idle >= 0 and v.max_idle or nil,
			max_total = v.max_total >= 0 and v.max_total or nil,
		})
	end)

	pool.serve('set_state', {
		fields = {
			{'state', arguments.word('active', 'draining', 'destroying', 'destroyed')},
			{'expected_revision', arguments.revision},
		},
	}, function(p, v)
		return change(p, v.expected_revision, {state = v.state})
	end)

	pool.serve('drain_host', {
		fields = {{'host', arguments.host}, {'draining', arguments.flag}},
	}, function(p, v)
		local record = records.host.get(p, v.host)
		if not record then
			return {'NOT_FOUND'}
		end
		record.drain_asked = v.draining
		records.host.put(p, v.host, record)
		meta.touch(p)
		if v.draining == 0 and call(p, 'ZCARD', key(p, 'idle:', v.host)) > 0 then
			call(p, 'ZADD', key(p, 'hosts:idle'), 'NX', p.now_us, v.host)
		end
		pool.nudge(p, v.host)
		return {'OK'}
	end)

	-- Listed entries of a host: with more than the minimum remaining, and the others.
	local function listed(p, host, min_ttl_ms)
		local idle = key(p, 'idle:', host)
		local all = call(p, 'ZCARD', idle) or 0
		local good = call(p, 'ZCOUNT', idle, '(' .. pool.digits(p.now + min_ttl_ms), '+inf') or 0
		return good, all - good
	end

	local function state_of(p, m, record)
		if not dispense.is_live(p, record) then
			return 'dead'
		elseif record.spec_digest ~= m.spec_digest then
			return 'spec_mismatch'
		end
		return dispense.is_draining(record) and 'draining' or 'live'
	end

	pool.serve('stats', {fields = {}}, function(p)
		local m = meta.load(p)
		if not m then
			return {'NOT_FOUND'}
		end
		local totals = {hosts_live = 0, idle = 0, idle_short = 0, creating = 0, leased = 0,
			waiting = 0, shares = 0}
		local rows = {}
		local hosts = records.hosts(p)
		for _, host in ipairs(hosts) do
			local r = host.record
			local live = dispense.is_live(p, r)
			local good, short = listed(p, host.name, m.min_ttl_ms)
			if live then
				totals.hosts_live = totals.hosts_live + 1
				totals.idle = totals.idle + good
				totals.idle_short = totals.idle_short + short
				totals.creating = totals.creating + r.creating
				totals.leased = totals.leased + r.leased
				totals.waiting = totals.waiting + r.waiters
				totals.shares = totals.shares + r.share
			end
			for _, element in ipairs({host.name, state_of(p, m, r), good, r.creating, r.leased,
					r.waiters, r.share, r.capacity, math.max(0, p.now - r.seen), r.version,
					r.endpoint}) do
				rows[#rows + 1] = element
			end
		end
		local pairs_of = {
			'max_idle', m.max_idle, 'max_total', m.max_total, 'min_ttl_ms', m.min_ttl_ms,
			'claim_timeout_ms', m.claim_timeout_ms, 'state', m.state, 'revision', m.revision,
			'spec_revision', m.spec_revision, 'spec_digest', m.spec_digest,
			'hosts', #hosts, 'hosts_live', totals.hosts_live, 'idle', totals.idle,
			'idle_short', totals.idle_short, 'creating', totals.creating,
			'leased', totals.leased, 'tickets', waiters.alive(p), 'waiting', totals.waiting,
			'shares', totals.shares, 'entries', call(p, 'HLEN', key(p, 'sb')) or 0,
			'leases', call(p, 'HLEN', key(p, 'lease')) or 0,
		}
		local reply = {'OK', p.now, #pairs_of / 2}
		for _, element in ipairs(pairs_of) do
			reply[#reply + 1] = element
		end
		reply[#reply + 1] = #hosts
		for _, element in ipairs(rows) do
			reply[#reply + 1] = element
		end
		return reply
	end)

	-- Asked by whoever is about to load the library: it may have no pool yet.
	pool.serve('info', {fields = {}, keyless = true}, function()
		return {'OK', 'sandpool_v1', 'build', BUILD}
	end)
end
