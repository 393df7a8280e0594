--[[
What supervisors call: register, heartbeat, publish, update, resync, unregister.

Writes happen once. Every call carries host, incarnation, seq; seq rises by one per call.

    another incarnation              FENCED    no effect; the caller has been replaced
    seq = stored, same function      the stored answer, no effect
    seq = stored + 1                 done; the answer is stored with it
    anything else, or no record      RESYNC    no effect; register, then list everything
    a key or record was damaged      RESYNC    it is deleted; what was done is the caller's own word

register starts at seq 0 and may be repeated by the same incarnation at any time. A new
incarnation takes a live host over only with the same secret and boot id; the last four before it
stay fenced, so that a register that was long under way cannot bring one back. `resync begin` may
jump forward.

Invariants: no call of a fenced incarnation or of an old seq writes; only a live host that has the
pool's spec, is not draining and stays within what it was told gets an entry listed.
]]
prepare[#prepare + 1] = function()
	local ITEMS_MAX = 256
	local HOSTS_MAX = 256
	local SWEEP_PER_CALL = 256
	local LISTING_GRACE_MS = 30000
	local RENEW_TELLINGS = 3
	local PAST_MAX = 4

	local call, key = pool.call, pool.key
	local PREFIX = {
		{'host', arguments.host},
		{'incarnation', arguments.incarnation},
		{'seq', arguments.revision},
	}
	local STATE = arguments.word('active', 'draining', 'destroying', 'destroyed')

	local function after_prefix(fields)
		local all = {}
		for _, list in ipairs({PREFIX, fields}) do
			for _, field in ipairs(list) do
				all[#all + 1] = field
			end
		end
		return all
	end

	--[[ Registers a supervisor's function: handler(p, v, me, m) runs once per seq and returns the
	reply, and true if the host's record is gone. `jumps(v)`: any higher seq will do.
	spec.without_record: the answer when there is no record. ]]
	local function once(fn, spec, handler, jumps)
		spec.fields = after_prefix(spec.fields)
		pool.serve(fn, spec, function(p, v)
			local me = records.host.get(p, v.host)
			if not me then
				return spec.without_record or {'RESYNC'}
			end
			if me.incarnation ~= v.incarnation then
				return {'FENCED'}
			end
			if v.seq == me.seq then
				return records.answer(p, v.host, v.seq, fn) or {'RESYNC'}
			end
			if v.seq ~= me.seq + 1 and not (jumps and jumps(v) and v.seq > me.seq) then
				return {'RESYNC'}
			end
			local m = meta.load(p)
			if not m or (me.left == 1 and not spec.without_record) then
				return {'RESYNC'}
			end
			me.seq = v.seq
			local reply, over = handler(p, v, me, m)
			if over then
				return reply
			end
			if p.damaged then
				return {'RESYNC'}
			end
			records.remember(p, v.host, v.seq, fn, reply)
			return reply
		end)
	end

	-- ---- register ----

	local function forget_names(past, incarnation)
		local kept = {incarnation}
		for old in string.gmatch(past, '[^,]+') do
			if #kept < PAST_MAX then
				kept[#kept + 1] = old
			end
		end
		return table.concat(kept, ',')
	end

	-- A new listing: what the host had listed is not dispensed any more, and dropped at its end.
	local function start_listing(p, host, me)
		me.listing = math.max(me.listing + 1, p.now)
		me.sweep, me.sweep_at = 1, p.now + LISTING_GRACE_MS
		call(p, 'UNLINK', key(p, 'idle:', host))
		call(p, 'ZREM', key(p, 'hosts:idle'), host)
	end

	local function sweep_if_due(p, host, me)
		if me.sweep == 1 and (me.sweep_at <= p.now or
				me.sweep_at > p.now + 2 * LISTING_GRACE_MS) then
			local done = sandboxes.sweep(p, host, me.listing, SWEEP_PER_CALL, 'lease_lost')
			me.sweep = done and 0 or 1
		end
	end

	pool.serve('register', {
		fields = after_prefix({
			{'secret_digest', arguments.lease},
			{'boot_id', arguments.incarnation},
			{'endpoint', arguments.text},
			{'capacity', arguments.count},
			{'version', arguments.text},
			{'max_idle', arguments.count},
			{'max_total', arguments.count},
			{'min_ttl_ms', arguments.time},
			{'claim_timeout_ms', arguments.time},
			{'state', STATE},
			{'revision', arguments.revision},
			{'spec_revision', arguments.revision},
			{'spec_digest', arguments.digest},
		}),
	}, function(p, v)
		if v.seq ~= 0 then
			return arguments.fault('register', 'seq', 'must be 0')
		end
		local me = records.host.get(p, v.host)
		local others = not me and call(p, 'HLEN', key(p, 'hosts'))
		local was_live = me and dispense.is_live(p, me)
		if me and string.find(',' .. me.past .. ',', ',' .. v.incarnation .. ',', 1, true) then
			return {'FENCED'}
		end
		if me and me.incarnation ~= v.incarnation then
			local same = me.secret_digest == v.secret_digest and me.boot_id == v.boot_id
			if was_live and not same then
				return {'HOST_ID_TAKEN', me.deadline - p.now}
			end
			me.past = forget_names(me.past, me.incarnation)
			me.idle, me.creating, me.leased, me.waiters = 0, 0, 0, 0
			me.drain_asked = me.secret_digest == v.secret_digest and me.drain_asked or -1
			start_listing(p, v.host, me)
		elseif not me then
			if others >= HOSTS_MAX then
				return {'HOSTS_FULL'}
			end
			me = records.new_host()
			start_listing(p, v.host, me)
		end
		me.incarnation, me.seq, me.left, me.weighed = v.incarnation, 0, 0, 0
		me.deadline, me.seen = p.now + meta.DEADLINE_MS, p.now
		me.secret_digest, me.boot_id, me.endpoint = v.secret_digest, v.boot_id, v.endpoint
		me.capacity, me.version = math.max(1, v.capacity), v.version
		me.spec_revision, me.spec_digest = v.spec_revision, v.spec_digest
		if not was_live then
			me.share = 0
		end
		local m = meta.register(p, v)
		if others then
			meta.count_hosts(p, m, others)
			meta.set(p, m, {hosts = others + 1, settle = m.settle})
		end
		records.host.put(p, v.host, me)
		if v.spec_revision ~= m.spec_revision or v.spec_digest ~= m.spec_digest then
			return {'SPEC_MISMATCH', m.spec_revision, m.spec_digest}
		end
		local reply = {'OK', p.now, math.min(me.told, me.share), meta.DEADLINE_MS}
		meta.append(reply, m)
		return reply
	end)

	-- ---- heartbeat ----

	local function append_items(p, host, reply, id, record)
		local count = 0
		local function item(kind, number, last)
			for _, element in ipairs({kind, id, record.lease, number, last}) do
				reply[#reply + 1] = element
			end
			count = count + 1
		end
		if record.asked == 'grant' then
			item('grant', record.ttl, math.max(0, p.now - record.since))
		elseif record.asked ~= '' then
			item(record.asked, 0, record.reason)
		end
		if record.wanted > 0 then
			if record.told >= RENEW_TELLINGS or record.wanted <= p.now then
				record.wanted, record.told = 0, 0
			else
				record.told = record.told + 1
				item('renew', record.wanted - p.now, '')
			end
			records.sandbox.put(p, id, record)
		end
		if count == 0 then
			call(p, 'ZREM', key(p, 'todo:', host), id)
		end
		return count
	end

	-- What is asked of this host. If there is more than fits, what was told goes to the end.
	local function append_todo(p, host, reply)
		local todo = key(p, 'todo:', host)
		local at = #reply + 1
		reply[at] = 0
		local ids = call(p, 'ZRANGE', todo, 0, ITEMS_MAX)
		local crowded = #ids > ITEMS_MAX
		for _, id in ipairs(ids) do
			if reply[at] > ITEMS_MAX - 2 then
				break
			end
			local record = records.sandbox.get(p, id)
			if record and record.host == host then
				reply[at] = reply[at] + append_items(p, host, reply, id, record)
				if crowded then
					call(p, 'ZADD', todo, 'XX', p.now + 1, id)
				end
			else
				call(p, 'ZREM', todo, id)
			end
		end
	end

	once('heartbeat', {
		fields = {
			{'idle', arguments.count},
			{'creating', arguments.count},
			{'leased', arguments.count},
			{'waiters', arguments.count},
			{'draining', arguments.draining},
			{'max_idle', arguments.count},
			{'max_total', arguments.count},
			{'state', STATE},
			{'revision', arguments.revision},
		},
	}, function(p, v, me, m)
		local was_live = dispense.is_live(p, me)
		local before = {}
		for _, name in ipairs({'idle', 'creating', 'leased', 'waiters', 'draining',
				'drain_asked', 'share', 'told'}) do
			before[name] = me[name]
		end
		me.deadline, me.seen = p.now + meta.DEADLINE_MS, p.now
		me.idle, me.creating, me.leased, me.waiters = v.idle, v.creating, v.leased, v.waiters
		me.draining = v.draining
		if me.drain_asked == v.draining then
			me.drain_asked = -1
		end
		meta.offer(p, m, v)
		sweep_if_due(p, v.host, me)
		if dispense.may_dispense(p, m, me) and call(p, 'ZCARD', key(p, 'idle:', v.host)) > 0 then
			call(p, 'ZADD', key(p, 'hosts:idle'), 'NX', p.now_us_text, v.host)
			if waiters.any(p) then
				-- It may have been away until now: that it lives has to be seen.
				records.host.put(p, v.host, me)
				dispense.serve(p, m)
			end
		end
		meta.note_brief(p, m, waiters.any(p))
		local tickets = shares.beat(p, m, v.host, me, before, was_live)
		records.host.put(p, v.host, me)
		local reply = {'OK', p.now, me.told, meta.DEADLINE_MS}
		meta.append(reply, m)
		reply[#reply + 1] = m.live
		reply[#reply + 1] = tickets
		append_todo(p, v.host, reply)
		reply[#reply + 1] = me.drain_asked
		return reply
	end)

	-- ---- publish ----

	local REFUSED_BY_STATE = {draining = 'drained', destroying = 'drained', destroyed = 'drained'}

	local function refusal(p, m, me, host, item)
		if REFUSED_BY_STATE[m.state] then
			return REFUSED_BY_STATE[m.state]
		elseif me.spec_digest ~= m.spec_digest or item.digest ~= m.spec_digest then
			return 'spec_changed'
		elseif dispense.is_draining(me) then
			return 'drained'
		elseif item.expires <= p.now + m.min_ttl_ms then
			return 'near_expiry'
		elseif not dispense.is_live(p, me) then
			return 'excess'
		end
		return nil
	end

	-- More is listed than the host was told; once a call it is looked whether all that is its own.
	local function exceeds(p, me, host)
		local idle = key(p, 'idle:', host)
		local now = '(' .. p.now_text
		if call(p, 'ZCOUNT', idle, now, '+inf') > me.told and not p.looked then
			p.looked = true
			dispense.drop_forged(p, host)
		end
		return call(p, 'ZCOUNT', idle, now, '+inf') > me.told
	end

	-- Returns the verdict, lease or "", ttl or reason.
	local function publish_one(p, m, me, host, item)
		local id = item.id
		local record = records.sandbox.get(p, id)
		if record and record.host == host and record.state == 'leased' and
				record.asked == 'grant' then
			return 'granted', record.lease, record.ttl
		end
		local reason = refusal(p, m, me, host, item)
		if reason then
			return 'refused', '', reason
		end
		local taken = sandboxes.say(p, m, host, me, {id = id, state = 'idle',
			ends = item.expires, lease = '', claimed = 0, digest = item.digest})
		if not taken then
			return 'refused', '', 'limit'
		end
		record = records.sandbox.get(p, id)
		if record.asked == 'command' then
			return 'refused', '', record.reason
		end
		local lease, ttl = dispense.give(p, m, id, record, me.endpoint)
		if lease then
			sandboxes.unlist(p, id, record)
			return 'granted', lease, ttl
		end
		if exceeds(p, me, host) then
			sandboxes.forget(p, id, host)
			return 'refused', '', 'excess'
		end
		return 'idle', '', 0
	end

	once('publish', {
		fields = {},
		group = {
			{'id', arguments.sandbox},
			{'expires', arguments.time},
			{'digest', arguments.digest},
		},
		most = 64,
	}, function(p, v, me, m)
		records.host.put(p, v.host, me)
		local reply = {'OK'}
		for _, item in ipairs(v.items) do
			reply[#reply + 1] = item.id
			for _, element in ipairs({publish_one(p, m, me, v.host, item)}) do
				reply[#reply + 1] = element
			end
		end
		return reply
	end)

	-- ---- update, resync ----

	local REASONS = {}
	for _, reason in ipairs({'released', 'expired', 'near_expiry', 'discarded', 'excess', 'drained',
			'died', 'create_failed', 'spec_changed', 'lease_lost', 'unclaimed', 'shutdown'}) do
		REASONS[reason] = true
	end

	-- One entry of a batch as sandboxes.say() wants it, or what is wrong with it.
	local function said_of(item)
		if item.state == 'leased' and item.lease == '' then
			return nil, 'a leased sandbox has a lease'
		end
		local ending = item.state == 'killing' or item.state == 'gone'
		return {
			id = item.id,
			state = item.state,
			ends = item.ends,
			lease = item.lease,
			claimed = item.claimed,
			digest = not ending and item.digest or '',
			reason = ending and REASONS[item.digest] and item.digest or '',
		}
	end

	-- Takes a batch; the reply names those beyond the host's limit.
	local function say_all(p, m, me, v)
		local reply, listed = {'OK'}, false
		for _, item in ipairs(v.items) do
			local taken, dispensable = sandboxes.say(p, m, v.host, me, said_of(item))
			if not taken then
				reply[#reply + 1] = item.id
			end
			listed = listed or dispensable
		end
		if listed then
			dispense.serve(p, m)
		end
		return reply
	end

	local function check(fn, v)
		for n, item in ipairs(v.items) do
			local said, what = said_of(item)
			if not said then
				return arguments.fault(fn, 'lease ' .. n, what)
			end
		end
		return nil
	end

	local SAYABLE = arguments.word('idle', 'leased', 'killing', 'gone')

	once('update', {
		fields = {},
		group = {
			{'id', arguments.sandbox},
			{'state', SAYABLE},
			{'lease', arguments.optional(arguments.lease)},
			{'ends', arguments.time},
			{'claimed', arguments.flag},
			{'digest', arguments.optional(arguments.digest)},
		},
		most = 64,
		check = check,
	}, function(p, v, me, m)
		records.host.put(p, v.host, me)
		return say_all(p, m, me, v)
	end)

	once('resync', {
		fields = {{'part', arguments.word('begin', 'more', 'end')}},
		group = {
			{'id', arguments.sandbox},
			{'state', SAYABLE},
			{'ends', arguments.time},
			{'digest', arguments.optional(arguments.digest)},
			{'lease', arguments.optional(arguments.lease)},
			{'claimed', arguments.flag},
		},
		most = 256,
		check = check,
	}, function(p, v, me, m)
		if v.part == 'begin' then
			start_listing(p, v.host, me)
		elseif me.sweep == 1 and v.part == 'more' then
			me.sweep_at = p.now + LISTING_GRACE_MS
		end
		local reply = say_all(p, m, me, v)
		if v.part == 'end' then
			me.sweep_at = p.now
			sweep_if_due(p, v.host, me)
		end
		records.host.put(p, v.host, me)
		return reply
	end, function(v)
		return v.part == 'begin'
	end)

	-- ---- unregister ----

	-- Drops a host's entries, a bounded number; the host itself once nothing is left of it.
	function records.drop_host(p, host, me, limit, reason)
		start_listing(p, host, me)
		local done, dropped = sandboxes.sweep(p, host, me.listing, limit, reason)
		if not done then
			me.left, me.deadline = 1, 0
			records.host.put(p, host, me)
			return false, dropped
		end
		records.host.drop(p, host)
		meta.host_left(p)
		call(p, 'HDEL', key(p, 'answers'), host)
		call(p, 'UNLINK', key(p, 'todo:', host))
		call(p, 'UNLINK', key(p, 'own:', host))
		return true, dropped
	end

	once('unregister', {fields = {}, without_record = {'OK'}}, function(p, v, me, m)
		local over = records.drop_host(p, v.host, me, SWEEP_PER_CALL, 'shutdown')
		if m.state == 'destroyed' and call(p, 'HLEN', key(p, 'hosts')) == 0 then
			for _, name in ipairs({'hosts', 'hosts:idle', 'sb', 'lease', 'lease:ends', 'waiters',
					'waiters:alive', 'waiters:wish', 'answers'}) do
				call(p, 'UNLINK', key(p, name))
			end
		end
		return {'OK'}, over
	end)
end
