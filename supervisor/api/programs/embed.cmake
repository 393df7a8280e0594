# The programs that sessions and contexts run inside a sandbox, as C arrays (a string literal would
# be longer than compilers must take): NAME.EXT becomes sp_NAME_EXT. Lines that are only a comment
# stay here.
#
#	cmake -DFOLDER=supervisor/api/programs -DOUT=programs_text.c -P embed.cmake
file(GLOB programs ${FOLDER}/*.bash ${FOLDER}/*.sh ${FOLDER}/*.py)
list(SORT programs)
file(WRITE ${OUT} "#include \"supervisor/api/execd_programs.h\"\n")
foreach(program IN LISTS programs)
	get_filename_component(name ${program} NAME)
	string(REPLACE "." "_" name ${name})
	file(READ ${program} text)
	string(REGEX REPLACE "(^|\n)[ \t]*#[^\n]*" "\\1" text "${text}")
	string(REGEX REPLACE "\n\n+" "\n" text "${text}")
	file(WRITE ${OUT}.${name} "${text}")
	file(READ ${OUT}.${name} bytes HEX)
	string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
	string(REPEAT "0x..," 16 line)
	string(REGEX REPLACE "(${line})" "\\1\n\t" bytes "${bytes}")
	file(APPEND ${OUT} "\nconst char sp_${name}[] = {\n\t${bytes}0x00,\n};\n")
endforeach()
