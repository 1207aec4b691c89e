# Offers names from the server. Without candidates from it, falls back to the static completions.
_tideline_with_server() {
    local found
    COMPREPLY=()
    while IFS= read -r found; do
        COMPREPLY+=("$found")
    done < <("${COMP_WORDS[0]}" complete --shell bash --line "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 0 ]]; then
        _tideline "$@"
    elif [[ ${COMPREPLY[0]} == *= ]]; then
        compopt -o nospace 2>/dev/null || true
    fi
}
complete -F _tideline_with_server -o bashdefault -o default tideline
