'use strict';
// An older Node lacks functions that the addon calls, and would end with a segmentation fault.
const oldest = [22, 14];
const [major, minor] = process.versions.node.split('.').map(Number);
if (major < oldest[0] || (major === oldest[0] && minor < oldest[1])) {
  throw new Error(`plait-db needs Node ${oldest.join('.')} or newer; this is ${process.versions.node}`);
}
module.exports = require('./lib/index.js');
