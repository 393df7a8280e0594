--[[
What can be called, and what the server may know of it in advance.

    no-writes   reads only: FCALL_RO, replicas
    allow-oom   works on a full server: what ends, extends or reports must not be refused, because
                refusing it frees nothing

The others are refused with OOM: acquire and wait, which reserve.
]]
local READS, ENDS, RESERVES = {'no-writes'}, {'allow-oom'}, {}
local FUNCTIONS = {
	{'register', ENDS}, {'heartbeat', ENDS}, {'publish', ENDS}, {'update', ENDS},
	{'resync', ENDS}, {'unregister', ENDS},
	{'acquire', RESERVES}, {'wait', RESERVES}, {'cancel', ENDS}, {'renew', ENDS},
	{'release', ENDS},
	{'stats', READS}, {'resize', ENDS}, {'set_state', ENDS}, {'drain_host', ENDS},
	{'reap', ENDS}, {'info', READS},
}

local function callback(name, readonly)
	return function(keys, argv)
		if prepare then
			for i = 1, #prepare do
				prepare[i]()
			end
			prepare = nil
		end
		return served[name](keys, argv, readonly)
	end
end

for i = 1, #FUNCTIONS do
	local name, flags = FUNCTIONS[i][1], FUNCTIONS[i][2]
	redis.register_function{
		function_name = 'sandpool_v1_' .. name,
		flags = flags,
		callback = callback(name, flags == READS),
	}
end
