--[[
The pool's meta: sizes, timers, spec and the operator's intent.

Supervisors carry what the operator wanted through a loss of Redis and offer it again; the highest
revision wins. Revision 0 means that no operator has said anything: then sizes are the
configuration of whoever registered last. The spec belongs to the configuration and has its own
number: a higher spec_revision moves the pool forward, a lower one, or the same with another
digest, is a mismatch.

Invariants: revision and spec_revision never go down; a meta with a field that cannot be read is
deleted whole, because half of an operator's intent is none.

When the directory is new (`born`), or all hosts were away for longer than a deadline, or records of
hosts were lost (`settle`: since when they are back), each host may come back to what it had before
anybody is given more; else the first one back would be given the whole pool and the others told to
kill theirs. That records were lost shows in `hosts`, which is how many there were.
]]
local meta = {}
prepare[#prepare + 1] = function()
	meta.DEADLINE_MS = 5000
	meta.SETTLE_MS = 2000

	local STATES = {active = true, draining = true, destroying = true, destroyed = true}
	local FIELDS = {'revision', 'state', 'max_idle', 'max_total', 'min_ttl_ms',
		'claim_timeout_ms', 'spec_revision', 'spec_digest', 'total', 'live', 'beat', 'born',
		'settle', 'version', 'nudged', 'brief', 'hosts'}
	local WORDS = {state = true, spec_digest = true, brief = true}
	local BRIEF = '^(%l+)|(%d+)|([01])|([^|]+)$'
	-- Bookkeeping of the library itself: may be missing.
	local OWN = {total = true, live = true, beat = true, born = true, settle = true,
		version = true, nudged = true, brief = true, hosts = true}

	local function load_fields(p, fields)
		local values = pool.call(p, 'HMGET', p.meta_key, unpack(fields))
		if not values or not values[1] then
			return nil
		end
		local m = {}
		for i, field in ipairs(fields) do
			local value = values[i]
			if not WORDS[field] then
				value = arguments.time(value or (OWN[field] and '0') or '')
			elseif OWN[field] then
				value = value or ''
			end
			if not value or (field == 'state' and not STATES[value]) then
				p.damaged = true
				if not p.readonly then
					pool.call(p, 'DEL', p.meta_key)
				end
				return nil
			end
			m[field] = value
		end
		return m
	end

	function meta.load(p)
		return load_fields(p, FIELDS)
	end

	--[[ What an acquire that is served has to know, as one field: state, min_ttl_ms, whether there may
	be tickets, spec_digest. Written with what it repeats; 'may' is taken back by heartbeats. ]]
	function meta.note_brief(p, m, waiting)
		local brief = string.format('%s|%.0f|%d|%s', m.state, m.min_ttl_ms, waiting and 1 or 0,
			m.spec_digest)
		if brief ~= m.brief then
			m.brief = brief
			pool.call(p, 'HSET', p.meta_key, 'brief', brief)
		end
	end

	function meta.brief(p)
		local text = pool.call(p, 'HGET', p.meta_key, 'brief')
		local state, least, waiting, digest = string.match(text or '', BRIEF)
		if not STATES[state] then
			local m = meta.load(p)
			if m then
				m.waiting = true
			end
			return m
		end
		return {state = state, min_ttl_ms = tonumber(least), waiting = waiting == '1',
			spec_digest = digest}
	end

	local function add(p, field, number)
		local value = pool.call(p, 'HGET', p.meta_key, field)
		if value then
			pool.call(p, 'HSET', p.meta_key, field,
				pool.digits(math.max(0, (arguments.time(value) or 0) + number)))
		end
	end

	-- Something that shares depend on is not as it was: they are computed anew (70_shares).
	function meta.touch(p)
		add(p, 'version', 1)
	end

	-- A host left, or was forgotten: nothing was lost.
	function meta.host_left(p)
		add(p, 'hosts', -1)
		meta.touch(p)
	end

	-- So many hosts have a record now. Fewer than there were: they will be back.
	function meta.count_hosts(p, m, count)
		if count < m.hosts then
			m.settle = p.now
		end
		m.hosts = count
	end

	-- Writes the named fields and keeps them in m.
	function meta.set(p, m, fields)
		local command, names = {}, {}
		for name in pairs(fields) do
			names[#names + 1] = name
		end
		table.sort(names)
		for _, name in ipairs(names) do
			local value = fields[name]
			m[name] = value
			command[#command + 1] = name
			command[#command + 1] = type(value) == 'number' and pool.digits(value) or value
		end
		pool.call(p, 'HSET', p.meta_key, unpack(command))
		if m.spec_digest ~= '' and (fields.state or fields.min_ttl_ms or fields.spec_digest) then
			meta.note_brief(p, m, true)
		end
	end

	-- What a supervisor remembers of the operator's intent.
	function meta.offer(p, m, offered)
		if offered.revision > m.revision then
			meta.set(p, m, {revision = offered.revision, state = offered.state,
				max_idle = offered.max_idle, max_total = offered.max_total,
				version = m.version + 1})
		end
	end

	local function offer_spec(p, m, offered)
		if offered.spec_revision > m.spec_revision or m.spec_digest == '' then
			meta.set(p, m, {spec_revision = offered.spec_revision,
				spec_digest = offered.spec_digest})
		end
		if offered.spec_revision == m.spec_revision and offered.spec_digest == m.spec_digest then
			meta.set(p, m, {min_ttl_ms = offered.min_ttl_ms,
				claim_timeout_ms = offered.claim_timeout_ms})
		end
	end

	function meta.register(p, offered)
		local m = meta.load(p)
		if not m then
			m = {revision = -1, total = 0, live = 0, settle = 0, version = p.now, nudged = 0,
				hosts = 0}
			meta.set(p, m, {beat = p.now, born = p.now, spec_revision = 0, spec_digest = ''})
			m.min_ttl_ms, m.brief = 0, ''
		elseif m.revision == 0 and offered.revision == 0 then
			meta.set(p, m, {max_idle = offered.max_idle, max_total = offered.max_total})
		end
		meta.offer(p, m, offered)
		offer_spec(p, m, offered)
		meta.touch(p)
		return m
	end

	-- The common tail of the answers to register and heartbeat.
	function meta.append(reply, m)
		for _, field in ipairs({'max_idle', 'max_total', 'min_ttl_ms', 'state', 'revision',
				'spec_revision', 'spec_digest'}) do
			reply[#reply + 1] = m[field]
		end
	end
end
