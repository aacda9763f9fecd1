# Servers for the scripts that run clients, and what clients of them are configured with. Sourced by those scripts, with `target` and `work` set.
# In every mode a client gets in by another means:
#   open         the server asks for nothing
#   api-key      the token of an API key, without TLS
#   certificate  over TLS, a client certificate whose common name is that of an API key; no token
#   jwt          over TLS, a JSON Web Token
modes="open api-key certificate jwt"
# The packages that `make_access` needs, for pip.
access_packages=(trustme==1.2.1 "pyjwt[crypto]==2.15.1")
access=$work/access
server=
trap '[ -z "$server" ] || stop_server; rm -rf "$work"' EXIT

# make_access PYTHON: writes the certificates, keys and tokens of all modes, and the API key files.
make_access() {
    mkdir "$access"
    "$1" .ci/access.py "$access"
    local add=(-tenant '*' -scopes '*:*')
    SVC_KEY_TOKEN=$(cat "$access/api-key") "$target/debug/nigh" keys add -file "$access/api-key.json" "${add[@]}" >/dev/null
    # Its token is drawn at random, and no client has it.
    "$target/debug/nigh" keys add -file "$access/certificate.json" -cert-cn client "${add[@]}" >/dev/null
}

# start_server MODE PROTO [FLAGS]: starts a server, whose process is `server`, and whose address for the protocol is `address`.
start_server() {
    local mode=$1 proto=$2 flags=() tls=(-tls-cert "$access/server.pem" -tls-key "$access/server.key")
    shift 2
    case $mode in
    open) ;;
    api-key) flags=(-keys-file "$access/api-key.json") ;;
    certificate) flags=("${tls[@]}" -tls-ca "$access/ca.pem" -keys-file "$access/certificate.json") ;;
    # A file that does not exist has no API keys.
    jwt) flags=("${tls[@]}" -jwt-public-key "$access/jwt.pem" -keys-file "$access/none.json") ;;
    *) echo "there is no mode $mode" && return 1 ;;
    esac
    "$target/debug/nigh" -http 127.0.0.1:0 "${flags[@]}" "$@" 2>"$work/log" &
    server=$!
    address=
    for _ in $(seq 200); do
        address=$(sed -n "s/.*msg=serving proto=$proto addr=\([^ ]*\).*/\1/p" "$work/log" | head -n 1)
        [ -z "$address" ] || return 0
        kill -0 "$server" || break
        sleep 0.1
    done
    cat "$work/log"
    return 1
}

stop_server() {
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
}
