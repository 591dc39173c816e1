"""Signs the bytes of a run's proof with the user's ed25519 key and checks such a signature; it does not judge whom to trust.

Needs the extra `sign` (the package `cryptography`). Keys are PEM files as `openssl genpkey -algorithm ed25519` makes them, or OpenSSH's unencrypted ones.
"""

from brim.errors import BrokenJournal, Unreadable, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def sign(message: bytes, key_path: str) -> tuple[str, str]:
    """(public key, signature), both in hex. `Usage` where the file is no ed25519 key."""
    serialization, ed25519 = _library()
    data = _bytes_of(key_path)
    key: Any = None
    for load in (serialization.load_pem_private_key, serialization.load_ssh_private_key):
        try:
            key = load(data, None)
            break
        except (ValueError, TypeError):
            continue
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise Usage(f"{key_path}: is no unencrypted ed25519 private key", hint="Make one: openssl genpkey -algorithm ed25519 -out key.pem")
    return key.public_key().public_bytes_raw().hex(), key.sign(message).hex()


def check(message: bytes, public_key: str, signature: str) -> None:
    """`BrokenJournal` where the signature does not belong to these bytes and this key."""
    _, ed25519 = _library()
    from cryptography.exceptions import InvalidSignature

    try:
        ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key)).verify(bytes.fromhex(signature), message)
    except (InvalidSignature, ValueError):
        raise BrokenJournal("the signature does not belong to this run and this key: the report or the journal was altered after it was signed") from None


def public_key_of(path_or_hex: str) -> str:
    """A public key in hex, from 64 hex digits or from a PEM or OpenSSH public key file."""
    text = path_or_hex.strip().lower()
    if len(text) == 64 and all(letter in "0123456789abcdef" for letter in text):
        return text
    serialization, ed25519 = _library()
    data = _bytes_of(path_or_hex)
    for load in (serialization.load_pem_public_key, serialization.load_ssh_public_key):
        try:
            key = load(data)
        except (ValueError, TypeError):
            continue
        if isinstance(key, ed25519.Ed25519PublicKey):
            return str(key.public_bytes_raw().hex())
    raise Usage(f"{path_or_hex}: is no ed25519 public key")


def _bytes_of(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(1 << 16)
    except OSError as fault:
        raise Unreadable(f"{path}: {fault.strerror or fault}") from None


def _library() -> "tuple[Any, Any]":
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise Usage("signatures need the package cryptography", hint="pip install 'brim[sign]'") from None
    return serialization, ed25519
