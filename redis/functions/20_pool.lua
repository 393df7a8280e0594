--[[
One call's view of one pool: its keys, the time, and commands that survive whatever lies in a key.

KEYS[1] is {prefix}:{P}:meta with literal braces; every other key is derived from it and so lies
in the same slot. The library declares only that one: a pool lives on one node.

Trusts Redis `TIME` to be a clock that may jump, not to be right. Trusts no stored value: a key of
another type is deleted and counts as damage; so does a record that does not decode (30_records).
A supervisor whose call met damage is answered RESYNC and tells everything again; for a client the
damaged thing is not there. Any other error of a command (no right, out of memory) is the server's
own word and goes to the caller as it is.

Invariants: one time per call; a read-only function deletes nothing; hints to hosts go out once
per host and call, in the order of their names, and their failure changes nothing.
]]
local pool = {}
prepare[#prepare + 1] = function()
	local KEY = '^[^{}]+:{[a-z0-9][a-z0-9._-]*}:meta$'
	local KEY_MAX = 300

	-- Numbers in commands and keys: tostring() would round to 14 digits.
	function pool.digits(number)
		return string.format('%.0f', number)
	end

	function pool.call(p, command, key, ...)
		local reply = redis.pcall(command, key, ...)
		if type(reply) ~= 'table' or not reply.err then
			return reply
		end
		if string.sub(reply.err, 1, 9) ~= 'WRONGTYPE' then
			error(reply)
		end
		p.damaged = true
		if p.readonly then
			return false
		end
		redis.call('DEL', key)
		return redis.call(command, key, ...)
	end

	function pool.key(p, name, host)
		return p.base .. name .. (host or '')
	end

	-- Has `instant` not come yet? One further away than anybody ever set it was written by a
	-- clock that was wrong.
	function pool.ahead(p, instant, span)
		return instant > p.now and instant <= p.now + 2 * span
	end

	-- Tell a host that something waits for it. The tick is the truth, this only shortens it.
	function pool.nudge(p, host)
		p.nudged[host] = true
	end

	function pool.nudge_all(p)
		for _, host in ipairs(pool.call(p, 'HKEYS', pool.key(p, 'hosts')) or {}) do
			p.nudged[host] = true
		end
	end

	local function send_nudges(p)
		if next(p.nudged) == nil then
			return
		end
		local hosts = {}
		for host in pairs(p.nudged) do
			hosts[#hosts + 1] = host
		end
		table.sort(hosts)
		for _, host in ipairs(hosts) do
			redis.pcall('PUBLISH', pool.key(p, 'events:', host), 'todo')
		end
	end

	local function open(fn, keys, readonly)
		local meta = keys[1]
		if #keys ~= 1 or #meta > KEY_MAX or not string.find(meta, KEY) then
			return nil, arguments.fault(fn, 'key',
				'must be one, written {prefix}:{pool}:meta with braces around the pool')
		end
		local time = redis.call('TIME')
		local micros = string.sub('00000' .. time[2], -6)
		local now, now_us = time[1] .. string.sub(micros, 1, 3), time[1] .. micros
		return {
			meta_key = meta,
			base = string.sub(meta, 1, -5),
			-- As text too: to write a number costs more than to add it to a sorted set.
			now = tonumber(now),
			now_text = now,
			now_us = tonumber(now_us),
			now_us_text = now_us,
			readonly = readonly,
			damaged = false,
			nudged = {},
		}
	end

	--[[ What a function of the library does: handler(p, values) returns the reply. `spec`: fields,
	group, most (see 10_arguments), check(fn, values), which returns a fault or nil; keyless: it looks
	at no pool, so a call may name none. ]]
	function pool.serve(fn, spec, handler)
		served[fn] = function(keys, argv, readonly)
			local p, fault = {nudged = {}}, nil
			if not spec.keyless or #keys > 0 then
				p, fault = open(fn, keys, readonly)
			end
			if not p then
				return fault
			end
			local values
			values, fault = arguments.read(fn, spec.fields, spec.group, spec.most, argv)
			fault = fault or (spec.check and spec.check(fn, values))
			if fault then
				return fault
			end
			local reply = handler(p, values)
			send_nudges(p)
			return reply
		end
	end
end
