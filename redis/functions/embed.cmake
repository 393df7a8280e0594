# Puts the function library together: redis/functions/*.lua in the order of their names, after the
# line that names it, as a C array. A string literal would be longer than compilers must take.
#
#	cmake -DFOLDER=redis/functions -DOUT=library_text.c -P embed.cmake
file(GLOB parts ${FOLDER}/*.lua)
list(SORT parts)
file(WRITE ${OUT}.lua "#!lua name=sandpool_v1\n")
foreach(part IN LISTS parts)
	file(READ ${part} text)
	file(APPEND ${OUT}.lua "${text}")
endforeach()
file(READ ${OUT}.lua bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
if(bytes MATCHES "0x[89a-f]")
	message(FATAL_ERROR "redis/functions: only ASCII, so that a char holds it everywhere")
endif()
string(REPEAT "0x..," 16 line)
string(REGEX REPLACE "(${line})" "\\1\n\t" bytes "${bytes}")
file(WRITE ${OUT} "#include \"redis/library.h\"\n\nconst char sp_redis_library_text[] = {\n\t${bytes}0x00,\n};\n")
