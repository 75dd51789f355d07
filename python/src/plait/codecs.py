"""How Python objects become keys and values of a map.

A kind is one of SQLite's types, which C checks and converts; a codec goes further: its `encode` makes one of SQLite's types of an object,
and its `decode` the object of that. JSON is stored as text, so that SQL's JSON functions find their way in it. Pickle runs code that the file says:
it is used where it is asked for, and a file of strangers should not be read with it.
"""

import json
import pickle

_KINDS = {None: "any", bytes: "bytes", str: "str", int: "int", float: "float"}


class Codec:
    """A pair of functions: `encode(object)` gives None, int, float, str or bytes, and `decode` of that the object."""

    def __init__(self, encode, decode):
        if not callable(encode) or not callable(decode):
            raise TypeError("a codec has two functions, encode and decode")
        self.encode = encode
        self.decode = decode


_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _from_json(text):
    if not isinstance(text, (str, bytes)):
        raise ValueError(f"the value is no JSON text: {text!r}")
    return json.loads(text)


def _from_pickle(data):
    if not isinstance(data, bytes):
        raise ValueError(f"the value is no pickle: {data!r}")
    return pickle.loads(data)


_NAMED = {
    "json": Codec(_to_json, _from_json),
    "pickle": Codec(lambda value: pickle.dumps(value, protocol=4), _from_pickle),
}


def key_kind(key):
    """The name of the kind that is asked for keys."""
    if key is float or key not in _KINDS:
        raise ValueError(f"keys are str, bytes, int, or None for any of SQLite's types, not {key!r}")
    return _KINDS[key]


def value_kind(value):
    """The name of the kind that is asked for values, and the codec or None."""
    if value is None or isinstance(value, type) and value in _KINDS:
        return _KINDS[value], None
    if isinstance(value, str) and value in _NAMED:
        return "any", _NAMED[value]
    if hasattr(value, "encode") and hasattr(value, "decode") and not isinstance(value, (str, bytes, type)):
        return "any", value
    raise ValueError(
        "values are bytes, str, int, float, None for any of SQLite's types, 'json', 'pickle', or something with"
        f" encode and decode, not {value!r}"
    )
