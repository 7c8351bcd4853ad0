"""What is wrong with TLS files, in words: the library that uses them only says that a handshake failed."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NoReturn

#: What PEM files of each kind hold.
_CERTIFICATE = "CERTIFICATE-----"
_KEY = "PRIVATE KEY-----"


def check_files(cert: str | None, key: str | None, ca: str | None) -> None:
    """Refuse files that cannot prove this process, or judge others.

    Raises:
        OSError: one cannot be read. ValueError: which one is not what it should be, and what it is instead.
    """
    for path in filter(None, (cert, ca)):
        _check_kind(path, _CERTIFICATE, "certificate", _KEY)
        _load_certificates(path)
    if key:
        _check_kind(key, _KEY, "private key", _CERTIFICATE)
    if cert and key:
        _load_pair(cert, key)


def _check_kind(path: str, wanted: str, name: str, other: str) -> None:
    text = Path(path).read_text(encoding="latin-1")
    if wanted not in text:
        hint = ": are certificate and key swapped?" if other in text else ""
        raise ValueError(f"{path} holds no {name} in PEM{hint}")


def _load_certificates(path: str) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError:
        raise ValueError(f"{path} holds a damaged certificate") from None


def _load_pair(cert: str, key: str) -> None:
    def ask_password() -> NoReturn:
        raise ValueError(f"{key} is encrypted with a password, which nobody is there to give")

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, ask_password)
    except ssl.SSLError as error:
        is_other = error.reason == "KEY_VALUES_MISMATCH"
        problem = f"does not belong to the certificate in {cert}" if is_other else "is damaged"
        raise ValueError(f"the private key in {key} {problem}") from None
