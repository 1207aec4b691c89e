# Offers names from the server.
function __tideline_of_server
    command tideline complete --shell fish --line (commandline -cp | string collect) 2>/dev/null
end
complete -c tideline -a '(__tideline_of_server)'
complete -c tideline -l table -x -a '(__tideline_of_server)'
complete -c tideline -s m -l measurement -x -a '(__tideline_of_server)'
complete -c tideline -s f -l field -x -a '(__tideline_of_server)'
complete -c tideline -l highest -x -a '(__tideline_of_server)'
complete -c tideline -l lowest -x -a '(__tideline_of_server)'
complete -c tideline -l group-by -x -a '(__tideline_of_server)'
complete -c tideline -s w -l where -x -a '(__tideline_of_server)'
