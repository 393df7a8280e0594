--[[
The packed records: what a field of a hash holds, as a msgpack array in a fixed order.

Only additions are made within v1, at the end, with a default, so that a newer library reads what
an older one wrote. Trusts nothing that is stored: a record with a wrong kind of value, a number
that is not whole or a word that is not known does not decode, is deleted and counts as damage.

Invariants: what `get` returns is complete and well typed; nothing in it can make a command fail.
]]
local records = {}
prepare[#prepare + 1] = function()
	local NUMBER_MAX = 9007199254740991
	local floor = math.floor

	local STATES = {idle = true, leased = true, killing = true}
	local ASKED = {[''] = true, grant = true, command = true, hint = true}

	-- Each field: name, default (its type is the field's), check.
	local SANDBOX = {
		{'host', '', arguments.host},
		{'state', '', function(value) return STATES[value] end},
		{'expires', 0},   -- end of its idle life
		{'digest', ''},
		{'lease', '', arguments.optional(arguments.lease)},
		{'ends', 0},      -- end of the lease: expected, then the supervisor's word
		{'claimed', 0},
		{'asked', '', function(value) return ASKED[value] end}, -- of the supervisor
		{'reason', ''},   -- of a command or hint
		{'since', 0},     -- asked since
		{'ttl', 0},       -- of a grant
		{'wanted', 0},    -- end that the holder wants, 0 = none
		{'told', 0},      -- how often the owner was told of that wish
		{'via', 0},       -- 1: the lease came from here, not from a local acquire
	}
	local HOST = {
		{'incarnation', ''},
		{'seq', 0},
		{'deadline', 0},     -- live until then
		{'share', 0},        -- counted against the pool until the deadline
		{'told', 0},         -- what the host was told last; at most its share
		{'endpoint', ''},
		{'capacity', 1},
		{'draining', 0},     -- the host's own word
		{'drain_asked', -1}, -- the operator's: 0, 1, -1 = none the host has not repeated
		{'version', ''},
		{'idle', 0},
		{'creating', 0},
		{'leased', 0},
		{'waiters', 0},
		{'seen', 0},
		{'boot_id', ''},
		{'secret_digest', ''},
		{'spec_revision', 0},
		{'spec_digest', ''},
		{'listing', 0},      -- number of the host's current listing (see 40_sandboxes)
		{'sweep', 0},        -- 1: entries of older listings are to be dropped ...
		{'sweep_at', 0},     -- ... from then on
		{'past', ''},        -- its last incarnations, which are fenced
		{'left', 0},         -- it unregistered; what is left of it is being dropped
	}
	local LEASE = {
		{'sandbox', '', arguments.optional(arguments.sandbox)}, -- '' = ended
		{'host', ''},
		{'reason', ''},
		{'policy', ''},      -- '' = bound by the supervisor: any parameters match
		{'min', 0},
		{'ttl', 0},
	}
	local WISH = {
		{'policy', ''},
		{'min', 0},
		{'ttl', 0},
		{'prefer', ''},
		{'exclude', ''},     -- csv
	}

	local function codec(fields)
		local count = #fields
		local names, defaults, types, checks = {}, {}, {}, {}
		for i, field in ipairs(fields) do
			names[i], defaults[i], types[i], checks[i] =
				field[1], field[2], type(field[2]), field[3] or false
		end
		local this = {}

		function this.new()
			local record = {}
			for i = 1, count do
				record[names[i]] = defaults[i]
			end
			return record
		end

		function this.pack(record)
			local values = {}
			for i = 1, count do
				values[i] = record[names[i]]
			end
			return cmsgpack.pack(values)
		end

		function this.unpack(text)
			local ok, values = pcall(cmsgpack.unpack, text)
			if not ok or type(values) ~= 'table' then
				return nil
			end
			local record = {}
			for i = 1, count do
				local value, kind = values[i], types[i]
				if value == nil and i > 1 then
					value = defaults[i]
				end
				if type(value) ~= kind then
					return nil
				end
				if kind == 'number' and (floor(value) ~= value or value > NUMBER_MAX or
						value < -NUMBER_MAX) then
					return nil
				end
				if checks[i] and not checks[i](value) then
					return nil
				end
				record[names[i]] = value
			end
			return record
		end

		return this
	end

	local function store(key_name, fields)
		local this = codec(fields)

		-- nil: there is none (any more).
		function this.decode(p, name, text)
			if not text then
				return nil
			end
			local record = this.unpack(text)
			if not record then
				p.damaged = true
				if not p.readonly then
					pool.call(p, 'HDEL', p.base .. key_name, name)
				end
			end
			return record
		end

		function this.get(p, name)
			return this.decode(p, name, pool.call(p, 'HGET', p.base .. key_name, name))
		end

		function this.put(p, name, record)
			pool.call(p, 'HSET', p.base .. key_name, name, this.pack(record))
		end

		function this.drop(p, name)
			pool.call(p, 'HDEL', p.base .. key_name, name)
		end

		return this
	end

	records.sandbox = store('sb', SANDBOX)
	records.host = store('hosts', HOST)
	records.lease = store('lease', LEASE)
	records.wish = store('waiters:wish', WISH)

	-- The answer to a host's last call: seq, function, reply. nil if there is none that fits.
	function records.answer(p, host, seq, fn)
		local text = pool.call(p, 'HGET', pool.key(p, 'answers'), host)
		local ok, answer = pcall(cmsgpack.unpack, text or '')
		if not ok or type(answer) ~= 'table' or answer[1] ~= seq or answer[2] ~= fn or
				type(answer[3]) ~= 'table' or type(answer[3][1]) ~= 'string' then
			return nil
		end
		for _, element in ipairs(answer[3]) do
			if type(element) ~= 'string' and type(element) ~= 'number' then
				return nil
			end
		end
		return answer[3]
	end

	function records.remember(p, host, seq, fn, reply)
		pool.call(p, 'HSET', pool.key(p, 'answers'), host, cmsgpack.pack({seq, fn, reply}))
	end
end
