--[[
The queue of those who wait: tickets, in the order in which they came.

    waiters        lease id -> ticket number (TIME in microseconds, but always above the last one)
    waiters:alive  lease id -> until when it counts as alive; each _wait moves it on
    waiters:wish   lease id -> packed: what it asked for
    grant:<lease>  a list that only wakes a blocked client; what counts is the lease mapping

A ticket whose holder has not been heard of for five seconds is stale: it is passed over, dropped
when met, and must be drawn anew. A call drops at most 16, so that a crowd that left costs nobody
a stall.

Trusts a ticket only if all three keys know it.

Invariants: among the live tickets whose wish an entry fits the oldest is served; live tickets are
what hosts get shares for; at most 4,096 tickets.
]]
local waiters = {}
prepare[#prepare + 1] = function()
	waiters.ALIVE_MS = 5000
	waiters.MOST = 4096
	local LOOK_AT = 64
	local DROP_PER_CALL = 16
	local WAKE_MS = 10000
	local NUDGE_EVERY_MS = 100

	local call, key = pool.call, pool.key

	function waiters.drop(p, lease)
		call(p, 'ZREM', key(p, 'waiters'), lease)
		call(p, 'ZREM', key(p, 'waiters:alive'), lease)
		records.wish.drop(p, lease)
		p.queue = nil
	end

	function waiters.has(p, lease)
		return call(p, 'ZSCORE', key(p, 'waiters'), lease) ~= false
	end

	-- It holds something now, from here or from its own host.
	function waiters.served(p, lease)
		if waiters.has(p, lease) then
			waiters.drop(p, lease)
			local list = key(p, 'grant:', lease)
			call(p, 'RPUSH', list, '1')
			call(p, 'PEXPIRE', list, WAKE_MS)
		end
	end

	function waiters.alive(p)
		return call(p, 'ZCOUNT', key(p, 'waiters:alive'), '(' .. pool.digits(p.now),
			p.now + 2 * waiters.ALIVE_MS) or 0
	end

	function waiters.refresh(p, lease)
		call(p, 'ZADD', key(p, 'waiters:alive'), p.now + waiters.ALIVE_MS, lease)
	end

	function waiters.position(p, lease)
		return (call(p, 'ZRANK', key(p, 'waiters'), lease) or 0) + 1
	end

	function waiters.any(p)
		return call(p, 'ZCARD', key(p, 'waiters')) > 0
	end

	local function is_stale(p, lease)
		local until_ms = tonumber(call(p, 'ZSCORE', key(p, 'waiters:alive'), lease) or 0)
		return not pool.ahead(p, until_ms, waiters.ALIVE_MS)
	end

	--[[ The oldest live ticket that fits(wish) says yes to: lease, wish. Looks at a bounded number of
	tickets; those that do not fit keep their place. ]]
	function waiters.oldest(p, fits)
		if not p.queue then
			p.queue = call(p, 'ZRANGE', key(p, 'waiters'), 0, LOOK_AT - 1)
			p.dropped = p.dropped or 0
		end
		for _, lease in ipairs(p.queue) do
			local wish = not is_stale(p, lease) and records.wish.get(p, lease)
			if not wish then
				if p.dropped == DROP_PER_CALL then
					return nil
				end
				p.dropped = p.dropped + 1
				waiters.drop(p, lease)
			elseif fits(wish) then
				return lease, wish
			end
		end
		return nil
	end

	-- Draws a ticket. nil: the queue is full.
	function waiters.enqueue(p, m, lease, wish)
		local queue = key(p, 'waiters')
		if call(p, 'ZCARD', queue) >= waiters.MOST then
			waiters.oldest(p, function() return false end)
			if call(p, 'ZCARD', queue) >= waiters.MOST then
				return nil
			end
		end
		local last = call(p, 'ZRANGE', queue, -1, -1, 'WITHSCORES')
		local number = math.max(p.now_us, (tonumber(last[2]) or 0) + 1)
		call(p, 'ZADD', queue, number, lease)
		waiters.refresh(p, lease)
		records.wish.put(p, lease, wish)
		p.queue = nil
		meta.note_brief(p, m, true)
		-- Somebody has to make one: not at the next tick but now.
		if not pool.ahead(p, m.nudged + NUDGE_EVERY_MS, NUDGE_EVERY_MS) then
			meta.set(p, m, {nudged = p.now})
			pool.nudge_all(p)
		end
		return waiters.position(p, lease)
	end
end
