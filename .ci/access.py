"""Writes to a directory what servers and clients are configured with where access is limited; `.ci/access.bash` has the modes.

`ca.pem`: the authority. `server.pem`, `server.key`: the server's certificate. `client.pem`, `client.key`: a client's, whose common name is `client`.
`api-key`: a token. `jwt.pem`: the public key of whoever issues JSON Web Tokens. `jwt`: such a token, which permits everything for an hour.
"""

import secrets
import sys
import time
from pathlib import Path

import jwt
import trustme
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

directory = Path(sys.argv[1])
authority = trustme.CA()
authority.cert_pem.write_to_path(directory / "ca.pem")
for name, names in [("server", ["127.0.0.1", "localhost"]), ("client", ["client.example"])]:
    certificate = authority.issue_cert(*names, common_name=name)
    certificate.cert_chain_pems[0].write_to_path(directory / f"{name}.pem")
    certificate.private_key_pem.write_to_path(directory / f"{name}.key")
(directory / "api-key").write_text(secrets.token_hex(16))
issuer = generate_private_key(public_exponent=65537, key_size=2048)
(directory / "jwt.pem").write_bytes(issuer.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
claims = {"sub": "a client", "exp": int(time.time()) + 3600, "tenant": "*", "scopes": ["*:*"]}
(directory / "jwt").write_text(jwt.encode(claims, issuer, algorithm="RS256"))
