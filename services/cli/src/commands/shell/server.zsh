    # Offers names from the server. Without candidates from it, falls back to the static completions.
    local -a of_server space
    of_server=("${(@f)$(${words[1]} complete --shell zsh --line "$LBUFFER" 2>/dev/null)}")
    of_server=(${of_server:#})
    if (( ${#of_server} )); then
        [[ ${of_server[1]} == *= ]] && space=(-S '')
        compadd $space -a of_server
        return
    fi

