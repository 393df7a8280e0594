--[[
sandpool_v1: every transition of a pool's directory, as functions of Redis >= 7.0 or Valkey.

The files of this folder are one text, in the order of their names. Each has one topic and says
what it trusts and what it keeps true; 90_functions registers what can be called. The protocol is
in redis/README.md, the ideas in the head of each file.

While a library loads, Redis 7.0 offers nothing but `redis.register_function`: no string, no
table, not even ipairs. So a file only leaves a function in `prepare`; the first call runs them,
in order, and they fill the tables that their files share.

Invariant: nothing survives a call but these tables, which are the same after every call. State is
in keys.
]]
local prepare = {}
local served = {}
