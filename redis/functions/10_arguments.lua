--[[
What a caller may send: KEYS[1] and ARGV, read into typed values before anything is touched.

Trusts nothing. A function declares its arguments as a list of {name, reader}; a repeated group
(publish, update, resync) as a second list with a most. The first argument that does not fit ends
the call with `ERR sandpool: <function>: <argument>: <what>` and no effect. Numbers are whole,
written in decimal digits, within the range that is named; they stay below 2^53, so that Lua's
doubles, ZSET scores and msgpack all hold them exactly.

Invariants: a handler only ever sees values of the declared kind; no text of a caller gets into a
key's name unless it matched a pattern without braces and colons.
]]
local arguments = {}
prepare[#prepare + 1] = function()
	local find = string.find
	local INTEGER_MAX = 9007199254740991

	function arguments.fault(fn, argument, what)
		return {err = 'ERR sandpool: ' .. fn .. ': ' .. argument .. ': ' .. what}
	end

	-- A reader takes the text and returns the value, or nil and what it should have been.
	local function pattern(expression, most, what)
		return function(text)
			if #text <= most and find(text, expression) then
				return text
			end
			return nil, what
		end
	end

	-- Anchored at both ends, the matcher runs through once: a search begins anew at every letter.
	local function exactly(length, expression, what)
		return function(text)
			if #text == length and find(text, expression) then
				return text
			end
			return nil, what
		end
	end

	function arguments.integer(least, most)
		local what = string.format('must be a whole number from %.0f to %.0f', least, most)
		return function(text)
			if #text <= 17 and find(text, '^%-?%d+$') then
				local value = tonumber(text)
				if value >= least and value <= most then
					return value
				end
			end
			return nil, what
		end
	end

	function arguments.word(...)
		local known = {}
		for _, word in ipairs({...}) do
			known[word] = true
		end
		local what = 'must be one of ' .. table.concat({...}, ', ')
		return function(text)
			if known[text] then
				return text
			end
			return nil, what
		end
	end

	function arguments.optional(reader)
		return function(text)
			if text == '' then
				return ''
			end
			return reader(text)
		end
	end

	-- "" or up to `most` values, separated by commas.
	function arguments.list(reader, most)
		return function(text)
			local values = {}
			if text == '' then
				return values
			end
			for part in string.gmatch(text .. ',', '([^,]*),') do
				if #values == most then
					return nil, 'must have at most ' .. most .. ' entries'
				end
				local value, what = reader(part)
				if value == nil then
					return nil, 'entry ' .. (#values + 1) .. ': ' .. what
				end
				values[#values + 1] = value
			end
			return values
		end
	end

	arguments.host = pattern('^[a-z0-9][a-z0-9._-]*$', 63,
		'must be a host name: 1 to 63 of a-z, 0-9, ".", "_", "-"')
	arguments.sandbox = exactly(20, '^[%da-hjkmnp-tv-z]+$',
		'must be a sandbox id: 20 of 0-9, a-z without i, l, o, u')
	arguments.lease = exactly(64, '^[%da-f]+$',
		'must be a lease id: 64 lower-case hex digits')
	arguments.incarnation = pattern('^[%w-]+$', 64,
		'must be 1 to 64 letters, digits or "-"')
	arguments.digest = pattern('^[%w._:+-]+$', 128, 'must be a digest of at most 128 characters')
	arguments.text = pattern('^[!-~][ -~]*$', 255, 'must be 1 to 255 printable characters')
	arguments.time = arguments.integer(0, INTEGER_MAX)
	arguments.count = arguments.integer(0, 1000000)
	arguments.revision = arguments.integer(0, INTEGER_MAX)
	arguments.flag = arguments.integer(0, 1)
	arguments.draining = arguments.integer(0, 2) -- 2: it is about to go

	-- Returns the values by name; a group's as values.items. Or nil and the fault.
	function arguments.read(fn, fields, group, most, argv)
		local values = {}
		if not group and #argv ~= #fields then
			return nil, arguments.fault(fn, 'arguments',
				#fields .. ' wanted, ' .. #argv .. ' given')
		end
		for i = 1, #fields do
			local field, text = fields[i], argv[i]
			local value, what
			if text then
				value, what = field[2](text)
			end
			if value == nil then
				return nil, arguments.fault(fn, field[1], what or 'missing')
			end
			values[field[1]] = value
		end
		if not group then
			return values
		end

		local rest = #argv - #fields
		local count = math.ceil(rest / #group)
		if count > most then
			return nil, arguments.fault(fn, group[1][1],
				'at most ' .. most .. ' at once, ' .. count .. ' given')
		end
		values.items = {}
		for n = 1, count do
			local item = {}
			for i, field in ipairs(group) do
				local text = argv[#fields + (n - 1) * #group + i]
				local value, what
				if text then
					value, what = field[2](text)
				end
				if value == nil then
					return nil, arguments.fault(fn, field[1] .. ' ' .. n, what or 'missing')
				end
				item[field[1]] = value
			end
			values.items[n] = item
		end
		return values
	end
end
